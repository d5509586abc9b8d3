"""Parts of sections: their charts, and the series that they draw. Pure."""
