"""Pure decisions and texts about what a model is shown and what is summarised."""
