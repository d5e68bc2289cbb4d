"""TF-IDF of words and characters over scikit-learn, with a state of JSON and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

ANALYZERS: dict[str, tuple[str, ...]] = {
    "word": ("word",),
    "char": ("char_wb",),
    "word+char": ("word", "char_wb"),
}
"""Parts of the features by the name of the choice."""

_NGRAMS = {"word": (1, 2), "char_wb": (2, 5)}


class Tfidf:
    """Sparse features ``[n, d]`` whose rows have length 1 in each part.

    A term's weight is ``(1 + log tf) (1 + log((1 + n) / (1 + df)))``.

    Args:
        features: A key of `ANALYZERS`.
        max_features: Terms of each part, the most frequent ones.
    """

    def __init__(self, features: str, max_features: int) -> None:
        self.features, self.max_features = features, max_features
        self.parts: list[Any] = []

    def fit(self, texts: Sequence[str]) -> Tfidf:
        """Learn the terms; texts without any word leave a part empty."""
        self.parts = []
        for analyzer in ANALYZERS[self.features]:
            part = _vectorizer(analyzer, max_features=self.max_features)
            try:
                part.fit(texts)
            except ValueError as error:  # scikit-learn's only word for texts without any term
                if "empty vocabulary" not in str(error):
                    raise
                continue
            self.parts.append(part)
        return self

    def transform(self, texts: Sequence[str]) -> Any:
        """Features of texts, [n, d] sparse float64."""
        from scipy import sparse

        if not self.parts:
            return sparse.csr_matrix((len(texts), 0))
        blocks = [part.transform(texts) for part in self.parts]
        return blocks[0] if len(blocks) == 1 else sparse.hstack(blocks, format="csr")

    def state(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """Terms as JSON, and ``idf_0``, ``idf_1`` as arrays."""
        terms = [
            {"analyzer": part.analyzer, "terms": part.get_feature_names_out().tolist()}
            for part in self.parts
        ]
        return terms, {f"idf_{i}": np.asarray(p.idf_) for i, p in enumerate(self.parts)}

    def load(self, terms: Sequence[dict[str, Any]], arrays: dict[str, Any]) -> Tfidf:
        """The inverse of `state`."""
        self.parts = []
        for i, part in enumerate(terms):
            vectorizer = _vectorizer(part["analyzer"], vocabulary=part["terms"])
            vectorizer.idf_ = np.asarray(arrays[f"idf_{i}"], dtype=np.float64)
            self.parts.append(vectorizer)
        return self


def _vectorizer(analyzer: str, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = {"token_pattern": r"(?u)\b\w+\b"} if analyzer == "word" else {}
    return TfidfVectorizer(
        analyzer=analyzer, ngram_range=_NGRAMS[analyzer], sublinear_tf=True, **words, **options
    )
