"""A realistic example made from nothing but a seed: loan-approval texts and small BERT encoders."""
