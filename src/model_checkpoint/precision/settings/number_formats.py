"""Number formats: the number formats training can run in, and lossless or lossy ways between them."""

from __future__ import annotations

from enum import Enum

import torch

from model_checkpoint.precision.errors import InvalidArgument


class Precision(Enum):
    """A floating-point format for weights, activations and gradients.

    Example:
        >>> Precision.BF16.dtype, Precision.BF16.is_reduced
        (torch.bfloat16, True)
    """

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype of this format."""
        return _DTYPES[self]

    @property
    def is_reduced(self) -> bool:
        """Whether a separate FP32 master is needed to train in this format."""
        return self is not Precision.FP32

    @property
    def needs_scale(self) -> bool:
        """Whether small gradients vanish in this format unless the loss is scaled."""
        return self is Precision.FP16

    @classmethod
    def of(cls, dtype: torch.dtype) -> Precision:
        """The format of ``dtype``; raises for anything training cannot run in.

        Example:
            >>> Precision.of(torch.float16)
            <Precision.FP16: 'fp16'>
        """
        for precision, known in _DTYPES.items():
            if known == dtype:
                return precision
        raise InvalidArgument(
            f"precision: {dtype} is not one of float32, float16, bfloat16. Convert the tensor to one of them first."
        )


_DTYPES = {Precision.FP32: torch.float32, Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


class PrecisionConverter:
    """Move tensors between precisions; a tensor already there is returned as it is.

    Example:
        >>> half = PrecisionConverter.convert(torch.ones(2), Precision.FP16)
        >>> PrecisionConverter.detect_precision(half)
        <Precision.FP16: 'fp16'>
    """

    @staticmethod
    def convert(tensor: torch.Tensor, precision: Precision) -> torch.Tensor:
        """Return ``tensor`` in ``precision``, rounding to nearest even; the same object when nothing changes."""
        if tensor is None:
            raise InvalidArgument("convert: tensor is None. Pass a tensor.")
        return tensor.to(precision.dtype)

    @staticmethod
    def detect_precision(tensor: torch.Tensor) -> Precision:
        """The precision ``tensor`` is stored in."""
        return Precision.of(tensor.dtype)

    @staticmethod
    def is_conversion_safe(source: Precision, target: Precision) -> bool:
        """Whether every value of ``source`` survives unchanged in ``target``.

        Example:
            >>> PrecisionConverter.is_conversion_safe(Precision.BF16, Precision.FP16)
            False
        """
        return source is target or target is Precision.FP32
