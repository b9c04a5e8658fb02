"""The masked-language-model loss. Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1."""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from model.batches import MaskedBatch
from model.encoder import Encoder


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
        logits = self.encoder.logits(self.encoder(ids), positions)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")


def masked_loss(encoder: Encoder, batch: MaskedBatch) -> Float[Tensor, ""]:
    """Mean cross-entropy over the masked tokens, in nats."""
    return MaskedLoss(encoder)(batch.ids, batch.positions, batch.targets) / len(batch.targets)
