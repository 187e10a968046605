"""How a model is trained with a mechanism."""
