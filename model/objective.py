"""The masked-language-model loss. Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from model.batches import MaskedBatch
from model.encoder import Encoder

# From here on the logits outgrow a processor's cache.
LARGE_VOCABULARY = 2048
ROWS_AT_ONCE = 512  # 256 and 1,024 took a few hundredths longer at 16,384 x 256 on an AMD EPYC


class MaskedLoss(nn.Module):
    """An encoder as what it is trained by: summed, so that parts of a batch add up to the batch."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        positions: Int[Tensor, "masked 2"],
        targets: Int[Tensor, " masked"],
    ) -> Float[Tensor, ""]:
        """Cross-entropy summed over the masked tokens, in nats."""
        encoder, hidden = self.encoder, self.encoder(ids)
        on_cpu = not hidden.is_cuda and not torch.is_autocast_enabled("cpu")
        if on_cpu and encoder.config.vocab_size >= LARGE_VOCABULARY and torch.is_grad_enabled():
            inputs = encoder.head_inputs(hidden, positions)
            parts = inputs, encoder.head_weight, encoder.head_bias, targets
            return _HeadLoss.apply(*parts)  # type: ignore[no-untyped-call]  # torch's
        logits = encoder.logits(hidden, positions)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")


class _HeadLoss(torch.autograd.Function):
    """A linear head and its cross-entropy, summed, some rows at a time.

    The gradients are taken on the way, while a part's logits are at hand: softmax minus truth.
    On one core that takes two thirds of the time of autograd's passes over all logits.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        """The loss of inputs [N, d_model] under weight [vocab, d_model] and bias [vocab]."""
        total = inputs.new_zeros(())
        d_inputs = torch.empty_like(inputs)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, len(inputs), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            at = (torch.arange(len(targets[part])), targets[part])
            logits = torch.addmm(bias, inputs[part], weight.T)
            logits -= logits.amax(dim=1, keepdim=True)
            wanted = logits[at]
            shares = logits.exp_()
            sums = shares.sum(dim=1, keepdim=True)
            total += (sums.squeeze(1).log() - wanted).sum()
            shares /= sums
            shares[at] -= 1
            torch.mm(shares, weight, out=d_inputs[part])
            d_weight.addmm_(shares.T, inputs[part])
            d_bias += shares.sum(dim=0)
        ctx.save_for_backward(d_inputs, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        """The gradients of `forward`, scaled."""
        return *(gradient * d_loss for gradient in ctx.saved_tensors), None


def masked_loss(encoder: Encoder, batch: MaskedBatch) -> Float[Tensor, ""]:
    """Mean cross-entropy over the masked tokens, in nats."""
    return MaskedLoss(encoder)(batch.ids, batch.positions, batch.targets) / len(batch.targets)
