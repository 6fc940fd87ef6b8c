"""The stages of the pipeline: each a function from artefacts (or the log) to artefacts, without a word printed."""
