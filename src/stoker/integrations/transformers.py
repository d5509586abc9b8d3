"""The Hugging Face Trainer, whose loaders Accelerate prepares.

class MyTrainer(stoker.integrations.transformers.LoaderMixin, transformers.Trainer):
    loader_options = {"num_workers": "auto", "rng": "sample"}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers.trainer
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from stoker._host.private_files import followed, replacing
from stoker.integrations import versions
from stoker.integrations.accelerate import keep, skip_first_batches

versions.name_untested("transformers")

_FILE = "stoker_loader_{rank}.pt"

# The Trainer calls it by this name. For loaders that nobody has kept it is Accelerate's.
transformers.trainer.skip_first_batches = skip_first_batches


class LoaderMixin:
    """Put before ``transformers.Trainer`` in the bases of a class: its loaders are stoker's.

    A checkpoint has the place of the training loader, one file for each rank. A training that resumes in mid-epoch with as many
    ranks goes on from there: no sample is read again, of an iterable dataset neither. Without that file, or with another number of
    ranks, the Trainer skips batches as it does without this class.
    """

    loader_options: ClassVar[dict[str, Any]] = {}
    """Arguments of ``stoker.DataLoader``, in addition to the Trainer's or in their place."""

    accelerator: Any
    args: Any
    _resumes_from: Path | None = None

    def create_accelerator_and_postprocess(self) -> None:
        """As the Trainer's; the accelerator keeps stoker's loaders."""
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        keep(self.accelerator, convert=True, **self.loader_options)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's."""
        trainer: Any = self
        found = resume_from_checkpoint
        if found is True:
            found = get_last_checkpoint(self.args.output_dir)
        self._resumes_from = Path(found) if isinstance(found, (str, os.PathLike)) else None
        if not any(isinstance(each, SaveLoaderState) for each in trainer.callback_handler.callbacks):
            trainer.add_callback(SaveLoaderState())
        return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        """As the Trainer's, on stoker's engine."""
        loader = super().get_train_dataloader()  # type: ignore[misc]
        if self._resumes_from is not None:
            path = self._resumes_from / _FILE.format(rank=self.args.process_index)
            state = torch.load(path, weights_only=False) if path.exists() else None
            if (
                state is not None
                and state["ranks"] == self.args.world_size
                and not self.args.ignore_data_skip
            ):
                loader._stoker_resumes = state["state"]
        return loader


class SaveLoaderState(TrainerCallback):  # type: ignore[misc]
    """Writes the state of the training loader beside each checkpoint."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer on every rank, after it has written a checkpoint."""
        loader = kwargs.get("train_dataloader")
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if loader is None or not getattr(loader, "use_stateful_dataloader", False):
            return
        folder.mkdir(parents=True, exist_ok=True)
        found = {"state": loader.state_dict(), "ranks": args.world_size}
        path = followed(folder / _FILE.format(rank=args.process_index))
        with replacing(path, mode=0o666) as fd, open(fd, "wb", closefd=False) as file:  # whole, or not at all
            torch.save(found, file)
