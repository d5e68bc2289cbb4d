"""Classifiers of texts: pretrained encoders and decoders crossed with ways to tune them."""
