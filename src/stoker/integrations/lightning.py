"""Lightning keeps stoker's loaders and their states by itself. One case needs help: loaders without a length.

trainer = lightning.Trainer(callbacks=[stoker.integrations.lightning.TrainedBatches()])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from stoker.integrations import versions
from stoker.loader import DataLoader

versions.name_untested("lightning")


class TrainedBatches(Callback):  # type: ignore[misc]
    """Lets a checkpoint count the batches that were trained on.

    To know which batch is the last, Lightning takes one batch ahead of a loader without a length, such as one over an
    ``IterableDataset`` without ``__len__``. Without this callback a checkpoint counts that batch, too, and a resume loses it.
    Loaders with a length are not read ahead, and this changes nothing for them.
    """

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Called by Lightning with the states of its loaders in the checkpoint: put in those without the batch ahead."""
        loop = trainer.fit_loop
        combined = getattr(loop, "_combined_loader", None)
        waiting = getattr(getattr(loop, "_data_fetcher", None), "batches", None)
        saved = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        states = saved.get("combined_loader")
        if not waiting or not states or combined is None:
            return
        stateful = [each for each in combined.flattened if hasattr(each, "load_state_dict")]
        if len(stateful) != len(states):
            return
        saved["combined_loader"] = [
            loader.state_dict(read_ahead=1) if isinstance(loader, DataLoader) else state
            for loader, state in zip(stateful, states, strict=True)
        ]
