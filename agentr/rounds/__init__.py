"""The loop over rounds, the stages of a run, and the services that the stages run on."""
