"""Masked-language-model encoders: configuration, corpus, tokenizer, training, scores."""
