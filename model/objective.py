"""The masked-language-model loss. Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from model.batches import MaskedBatch
from model.encoder import Encoder


def masked_loss(encoder: Encoder, batch: MaskedBatch) -> Float[Tensor, ""]:
    """Mean cross-entropy over the masked tokens, in nats."""
    hidden = encoder(batch.ids, batch.lengths)
    return functional.cross_entropy(encoder.logits(hidden, batch.positions), batch.targets)
