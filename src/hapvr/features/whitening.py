"""PCA whitening of region vectors: the fitted map, and its fit over any number of vectors in bounded memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.checks import require_finite, shape_of
from hapvr.config import CheckedConfig, Within, from_mapping
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.weights import Part, load_strict

_ROWS = 4096  # vectors taken at a time: at 3840 dimensions their float64 copy takes 126 MB


@dataclass(frozen=True)
class WhiteningConfig(CheckedConfig):
    """Dimensions before and after whitening. The defaults are those of ResNet-50 regions."""

    inputs: Annotated[int, Within(1)] = 3840
    outputs: Annotated[int, Within(1)] = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outputs > self.inputs:
            raise ConfigError(f"whitening cannot make {self.outputs} outputs of {self.inputs} inputs: ask for fewer.")


class Whitening(nn.Module):
    """Subtract the mean, project on scaled eigenvectors, L2-normalise: [..., D_in] to [..., D_out].

    A vector equal to the mean becomes zero, not NaN. Half-precision vectors are whitened and returned in the type of
    the module (float32 as fitted).

    Example: (3, 4) less the mean (1, 2) is (2, 2); the projection turns it into (2, 6), which has length sqrt(40).
        >>> whitening = Whitening(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        >>> [round(value, 4) for value in whitening(torch.tensor([3.0, 4.0])).tolist()]
        [0.3162, 0.9487]
    """

    mean: Tensor  # [D_in]
    projection: Tensor  # [D_in, D_out]

    def __init__(self, mean: Tensor, projection: Tensor) -> None:
        super().__init__()
        if projection.ndim != 2 or mean.shape != projection.shape[:1]:
            raise ShapeError(
                f"mean must be [D_in] and projection [D_in, D_out], got {shape_of(mean)} and {shape_of(projection)}."
            )
        require_finite(mean, "mean")
        require_finite(projection, "projection")
        self.config = WhiteningConfig(inputs=projection.shape[0], outputs=projection.shape[1])
        self.register_buffer("mean", mean)
        self.register_buffer("projection", projection)

    def project(self, vectors: Tensor) -> Tensor:
        """The same without the last normalisation: on the vectors of the fit, of identity covariance."""
        _check_vectors(vectors, inputs=self.config.inputs)
        with torch.autocast(vectors.device.type, enabled=False):  # directions of small variance would not survive it
            return (vectors.to(self.mean.dtype) - self.mean) @ self.projection

    def forward(self, vectors: Tensor) -> Tensor:
        """Whitened vectors [..., D_out] of unit length."""
        return F.normalize(self.project(vectors), dim=-1)

    def followed_by(self, matrix: Tensor) -> Whitening:
        """This whitening and then a linear map y -> M y, [D, D_out], as one: lengths do not matter in between.

        >>> turned = Whitening(torch.zeros(2), torch.eye(2)).followed_by(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        >>> turned(torch.tensor([1.0, 0.0])).tolist()
        [0.0, 1.0]
        """
        return Whitening(self.mean, self.projection @ matrix.to(self.projection).mT)

    def to_part(self) -> Part:
        """This whitening as the part "whitening" of a model folder (see `hapvr.weights`)."""
        return Part(asdict(self.config), dict(self.state_dict()))

    @classmethod
    def from_part(cls, part: Part) -> Whitening:
        """Read what `to_part` made; tensors that do not fit the settings are an error that lists them."""
        config = from_mapping(WhiteningConfig, part.config)
        dtype = part.tensors["mean"].dtype if "mean" in part.tensors else torch.float32
        whitening = cls(
            torch.zeros(config.inputs, dtype=dtype), torch.zeros(config.inputs, config.outputs, dtype=dtype)
        )
        load_strict(whitening, part.tensors, source="the part 'whitening'")
        return cls(whitening.mean, whitening.projection)  # once more: the loaded values must be finite too


class WhiteningFit:
    """Gathers what PCA needs from a stream of vectors, in the memory of one D_in x D_in float64 matrix.

    Each chunk is centred on its own mean before it is multiplied, and chunks are joined by the formula of Chan,
    Golub and LeVeque (1983): with n, m and S the count, mean and scatter of either side,
        S = S_a + S_b + n_a n_b / (n_a + n_b) (m_b - m_a)(m_b - m_a)^T.
    So neither the order, nor the chunking, nor an offset common to all vectors costs precision. It lives on the
    device of the first vectors: at 3840 dimensions a million vectors are 3e13 float64 operations, a quarter of an
    hour on two processor cores (and `finish` the better part of a minute), so give it those of a GPU if you can.

    Example: (0, 0), (2, 0), (0, 4), (2, 4) have variances 1 and 4 along the axes; the larger comes first.
        >>> fit = WhiteningFit()
        >>> fit.update(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> fit.update(torch.tensor([[0.0, 4.0], [2.0, 4.0]]))
        >>> whitening = fit.finish(outputs=2, floor=0.0)
        >>> whitening.mean.tolist(), whitening.projection.tolist()
        ([1.0, 2.0], [[0.0, 1.0], [0.5, 0.0]])
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = torch.empty(0)  # [D_in] float64 once there are vectors
        self._scatter = torch.empty(0)  # [D_in, D_in] float64: sum over vectors x of (x - mean)(x - mean)^T

    def update(self, vectors: Tensor) -> None:
        """Take vectors [..., D_in] into account. Vectors with a NaN are refused before any of them counts."""
        _check_vectors(vectors, inputs=self._mean.numel() if self.count else None)
        require_finite(vectors, "vectors")
        device = self._mean.device if self.count else vectors.device
        for rows in torch.split(vectors.detach().reshape(-1, vectors.shape[-1]), _ROWS):
            if len(rows):
                chunk = rows.to(device=device, dtype=torch.float64)
                mean = chunk.mean(dim=0)
                chunk = chunk - mean
                self._add(len(chunk), mean, chunk.mT @ chunk)

    def merge(self, other: WhiteningFit) -> None:
        """Take into account everything that `other`, another worker's fit, has seen; `other` is left as it is."""
        if not other.count:
            return
        if self.count and self._mean.shape != other._mean.shape:
            raise ShapeError(
                f"cannot merge a fit of {other._mean.numel()}-dimensional vectors into one of {self._mean.numel()}."
            )
        self._add(other.count, other._mean, other._scatter)

    def finish(self, outputs: int = 512, floor: float = 1e-7, *, dtype: torch.dtype = torch.float32) -> Whitening:
        """The whitening onto the `outputs` directions of largest variance; more vectors may still follow.

        Column d of the projection is v_d / sqrt(lambda_d + floor), with (lambda_d, v_d) the eigenpairs of the
        covariance (scatter / count) in descending order. The sign of v_d, which no decomposition fixes, makes its
        entry of largest magnitude positive. Directions without variance are kept from infinity by the floor.

        The authors' code decomposes the scatter instead: its whitening differs by a factor that the final
        normalisation removes, and by a floor that is `count` times smaller; `floor=1e-7 / fit.count` gives theirs.
        """
        if not floor >= 0:
            raise ConfigError(f"floor must be at least 0, got {floor}.")
        if self.count:
            WhiteningConfig(inputs=self._mean.numel(), outputs=outputs)  # refuses outputs beyond the inputs
        if self.count <= outputs:
            raise DataError(
                f"the fit has seen {self.count} vectors; {outputs} outputs need at least {outputs + 1}, since n "
                "vectors vary in at most n - 1 directions. Give it more (some hundred per output is usual)."
            )
        values, directions = torch.linalg.eigh(self._scatter / self.count)  # ascending
        values = values.flip(0)[:outputs].clamp(min=0)
        directions = directions.flip(1)[:, :outputs]  # [D_in, outputs]
        peaks = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))  # [1, outputs]
        projection = directions * peaks.sign() / (values + floor).sqrt()
        return Whitening(self._mean.to(dtype), projection.to(dtype))

    def _add(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        if not self.count:
            self.count, self._mean, self._scatter = count, mean.clone(), scatter.clone()
            return
        total = self.count + count
        shift = mean.to(self._mean) - self._mean
        self._scatter += scatter.to(self._scatter)
        self._scatter.addr_(shift, shift, alpha=self.count * count / total)
        self._mean += shift * (count / total)
        self.count = total


def _check_vectors(vectors: Tensor, *, inputs: int | None) -> None:
    if not isinstance(vectors, Tensor) or vectors.ndim < 1 or not vectors.is_floating_point():
        raise ShapeError(f"vectors must be a floating-point tensor [..., D_in], got {shape_of(vectors)}.")
    if vectors.shape[-1] == 0 or (inputs is not None and vectors.shape[-1] != inputs):
        raise ShapeError(
            f"vectors must be [..., {inputs or 'D_in >= 1'}], got {shape_of(vectors)}. Were they made by another "
            "backbone, or whitened already?"
        )
