"""Where to compute: one home for the choice of a device by name, and for the message if it is not there."""

from __future__ import annotations

import torch

from hapvr.errors import ConfigError

AUTO = "auto"  # all CUDA GPUs; else Apple's GPU, if its answers are right; else the CPU


def find_devices(name: str | torch.device = AUTO) -> tuple[torch.device, ...]:
    """The devices that a name stands for; `ConfigError` for one that is not here.

    Args:
        name: "auto", "cpu", "cuda" (all GPUs of this machine), "cuda:1", "mps", or several of one kind, joined by
            commas. A `torch.device` stands for itself.

    >>> find_devices("cpu"), find_devices("cpu,cpu")
    ((device(type='cpu'),), (device(type='cpu'), device(type='cpu')))
    """
    if isinstance(name, torch.device):
        return (name,)
    if name == AUTO:
        return _list_gpus() or ((torch.device("mps"),) if _has_mps() else (torch.device("cpu"),))
    found = tuple(device for part in name.split(",") for device in _find_named(part.strip(), name))
    if len({device.type for device in found}) > 1:
        raise ConfigError(f"'{name}' mixes kinds of devices. Name devices of one kind, such as cuda:0,cuda:1.")
    return found


def find_device(name: str | None) -> torch.device:
    """The first device of a name; for None a CUDA GPU if there is one, else the CPU."""
    if name is None or name == AUTO:
        return (*_list_gpus(), torch.device("cpu"))[0]
    return find_devices(name)[0]


def describe_devices() -> str:
    """What torch finds on this machine, as a sentence."""
    if torch.version.cuda is None:
        found = f"torch {torch.__version__} is built without CUDA"
    else:
        names = [torch.cuda.get_device_name(device) for device in _list_gpus()]
        listed = f": {', '.join(names)}" if names else ""
        found = f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds {len(names)} GPUs{listed}"
    return f"{found}; Apple's GPU (mps) is {'there' if _has_mps() else 'not there'}."


def _find_named(part: str, whole: str) -> tuple[torch.device, ...]:
    try:
        device = torch.device(part)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"There is no device '{whole}': give auto, cpu, cuda, cuda:1, cuda:0,cuda:1 or mps.")
    gpus = _list_gpus()
    if (device.type == "cuda" and (device.index or 0) >= len(gpus)) or (device.type == "mps" and not _has_mps()):
        remedy = "Give cpu or auto" + (", or install torch with CUDA (pytorch.org)." if not gpus else ".")
        raise ConfigError(f"There is no device '{part}' here: {describe_devices()} {remedy}")
    return gpus if device.type == "cuda" and device.index is None else (device,)


def _list_gpus() -> tuple[torch.device, ...]:
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.device("cuda", number) for number in range(torch.cuda.device_count()))


def _has_mps() -> bool:
    return torch.backends.mps.is_available()
