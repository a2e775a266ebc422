"""The training arguments in a checkpoint of HAP-VR, S2VS or DnS: which network its weights are for."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor

from hapvr.config import suggest
from hapvr.errors import ConfigError, WeightsError
from hapvr.similarity import SimilarityConfig
from hapvr.similarity.chamfer import Aggregation

AGGREGATIONS: Mapping[str, Aggregation] = {
    "Chamfer": "chamfer",
    "TopKChamfer": "topk",
    "Max": "max",
    "Average": "average",
}
"""The names that the arguments `f2f_sim_module` and `v2v_sim_module` take, and ours."""

FORGOTTEN_RATE = 0.3  # what symmetric TopK-Chamfer keeps in the authors' code, which does not hand its rate on

# Arguments with one value that hapvr's network is for. Another value is another network.
_FIXED: Mapping[str, Any] = {
    "similarity_network": "ViSiL",
    "backbone": "resnet",
    "attention_norm": False,
    "batch_norm": False,
    "mlp": False,
}
_READ = ("dims", "attention", "binarization", "binary_bits", "f2f_sim_module", "v2v_sim_module", "f_topk_rate",
         "v_topk_rate", "symmetric")  # fmt: skip
# Arguments of data, augmentation, losses and schedule: none changes what the trained network computes.
_TRAINING = frozenset({
    "dataset_path", "experiment_path", "workers", "load_model", "saved_model_path", "log_step", "use_fp16",
    "dist_url", "rank", "world_size", "gpu", "epochs", "loss_selected", "loss_allowed", "loss_list",
    "qlap_sigma", "qlap_rho", "innerAP_qlap_sigma", "innerAP_qlap_rho", "inner_parameter",
    "pseudo_label_top_rate", "pseudo_label_bottom_rate", "use_pseudo_label", "pretrained_DINO_path",
    "DINO_arch", "eval_step", "batch_sz", "batch_sz_fe", "iter_epochs", "percentage", "learning_rate",
    "final_lr", "warmup_iters", "warmup_lr_init", "weight_decay", "window_sz", "temperature",
    "lambda_parameter", "r_parameter", "augmentations", "n_raug", "m_raug", "p_overlay", "p_blur", "p_tsd",
    "p_ff", "p_sm", "p_rev", "p_pau", "p_shuffle", "p_dropout", "p_content", "p_viv", "lambda_viv",
})  # fmt: skip
KNOWN = frozenset({*_FIXED, *_READ, *_TRAINING})
"""All arguments of the training scripts that HAP-VR and S2VS publish."""


def read_settings(
    args: Any, tensors: Mapping[str, Tensor], usual: SimilarityConfig, *, source: str, ignored: Collection[str] = ()
) -> SimilarityConfig:
    """The network that a checkpoint is for, from its arguments and the shapes of its tensors (in our names).

    Args:
        args: what stands under "args" in the checkpoint; None where it has none.
        tensors: the weights; they tell attention, binarised and plain networks apart where the arguments do not.
        usual: the published settings of this kind, for what the arguments leave open.
        source: the file as messages name it.
        ignored: further arguments that may be there and do not count.

    `WeightsError` names every argument that is not known, and the value that hapvr has no network for.
    """
    given = _list_arguments(args, source)
    for name in ignored:
        if name in _FIXED or name in _READ:
            raise ConfigError(f"the argument '{name}' says which network this is: it cannot be ignored.")
    if unknown := sorted(set(given) - KNOWN - set(ignored)):
        raise WeightsError(
            f"{source} was trained with arguments that hapvr does not know: {', '.join(unknown)}. They may change the "
            "network. If one does not, name it by --ignore-arg (ignored_args in Python)."
        )
    for name, value in _FIXED.items():
        if name in given and given[name] != value:
            raise WeightsError(
                f"{source} was trained with {name}={given[name]!r}, and hapvr has {name}={value!r} alone: it has no "
                "such network."
            )
    return dataclasses.replace(
        usual, **_read_weighting(given, tensors, usual, source), **_read_levels(given, usual, source)
    )


def _list_arguments(args: Any, source: str) -> dict[str, Any]:
    if args is None:
        return {}
    if isinstance(args, argparse.Namespace):
        return vars(args)
    if isinstance(args, Mapping) and all(isinstance(name, str) for name in args):
        return dict(args)
    raise WeightsError(f"{source} holds a {type(args).__name__} as 'args'; named arguments were expected.")


def _read_weighting(
    given: Mapping[str, Any], tensors: Mapping[str, Tensor], usual: SimilarityConfig, source: str
) -> dict[str, Any]:
    """dims, weighting and bits."""
    found = {kind: any(name.startswith(f"{kind}.") for name in tensors) for kind in ("attention", "binarization")}
    use = {kind: _get(given, kind, there, _is_flag, "true or false", source) for kind, there in found.items()}
    if all(use.values()):
        raise WeightsError(f"{source} has attention and binarisation at once; a network has one of them.")
    matrix = tensors.get("binarization.projection" if use["binarization"] else "attention.transform.weight")
    inputs, outputs = (usual.dims, usual.dims) if matrix is None or matrix.ndim != 2 else matrix.shape
    dims = _get(given, "dims", inputs, _is_count, "a whole number from 1", source)
    if use["binarization"]:
        # The authors' layer has the bits of the rotation it was started from, whatever `binary_bits` says.
        return {"dims": dims, "weighting": "binary", "bits": outputs}
    return {"dims": dims, "weighting": "attention" if use["attention"] else "none", "bits": None}


def _read_levels(given: Mapping[str, Any], usual: SimilarityConfig, source: str) -> dict[str, Any]:
    """Both aggregations, their rates, and the symmetry; what is not given is left out."""
    settings: dict[str, Any] = {}
    symmetric = _get(given, "symmetric", False, _is_flag, "true or false", source)
    if symmetric:
        settings["symmetry"] = "levels"
    for level, module, rate in (
        ("spatial", "f2f_sim_module", "f_topk_rate"),
        ("temporal", "v2v_sim_module", "v_topk_rate"),
    ):
        if module in given:
            if given[module] not in AGGREGATIONS:
                raise WeightsError(
                    f"{source} was trained with {module}={given[module]!r}, which hapvr does not know; "
                    f"{suggest(str(given[module]), list(AGGREGATIONS))}"
                )
            settings[level] = AGGREGATIONS[given[module]]
        if rate in given:
            settings[f"{level}_keep_rate"] = float(_get(given, rate, 0.0, _is_rate, "a number from 0 to 1", source))
        if symmetric and settings.get(level, getattr(usual, level)) == "topk":
            settings[f"{level}_keep_rate"] = FORGOTTEN_RATE
    return settings


def _get(
    given: Mapping[str, Any], name: str, default: Any, fits: Callable[[Any], bool], expected: str, source: str
) -> Any:
    value = given.get(name, default)
    if not fits(value):
        raise WeightsError(f"{source} was trained with {name}={value!r}; {expected} was expected.")
    return value


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
