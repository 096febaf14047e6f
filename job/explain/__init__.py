"""Why a row was not emitted: one sentence for each record of a key. Facts come from the topics, the
state and the watermark history of a running join, or from a simulation."""
