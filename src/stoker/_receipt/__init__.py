"""Receipts: small digests of the samples that a loader handed over. Works without torch; ``stoker verify`` reads them."""
