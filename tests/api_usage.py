"""A user's script over `import workbench`: run as it stands by tests/test_api.py, and held against mypy --strict.

    api_usage.py EXPERIMENT MODEL MANIFEST FOLDER      (prints what it found as JSON)

There is no guard around what it does: no process that the workbench starts may run it again.
"""

import json
import sys
from pathlib import Path

import workbench

experiment_file, model_file, manifest, folder = sys.argv[1:]
started: list[tuple[str, str]] = []
seen: list[workbench.Evaluation] = []


def tell(evaluation: workbench.Evaluation, reused: bool) -> None:
    assert not reused
    seen.append(evaluation)


experiment: workbench.Experiment = workbench.read_experiment(experiment_file)
result: workbench.SweepResult = workbench.sweep(
    experiment,
    trials=2,
    timeout_s=3600.0,
    on_plan=lambda plan: print(plan.todo, file=sys.stderr),
    on_stage=lambda candidate, stage: started.append((candidate.short_id, stage)),
    on_evaluation=tell,
)
rows: list[workbench.Row] = result.rows()
front: tuple[workbench.Member, ...] = result.front
recommendation: workbench.Recommendation | None = result.recommendation
recommended: workbench.Candidate | None = result.recommended
assert recommended is not None
again: workbench.SweepResult = workbench.read_sweep(Path(experiment_file))

calibrated: workbench.Calibrated = workbench.calibrate(model_file, Path(folder) / "amct", data=manifest)
comparison: workbench.Comparison = workbench.compare(
    model_file, f"{folder}/amct/model_qdq_model.onnx", data=Path(manifest), limits=workbench.Limits(cosine=0.9)
)
done: workbench.Exported = workbench.export(experiment, f"{folder}/bundle", candidate=recommended.short_id)
with workbench.load_bundle(done.directory, policy="refuse") as model:
    answers = model.predict(["loan please", ["when", "repay"]])
    outputs = model.run({"input_ids": [[2, 3]], "attention_mask": [[1, 1]]})

try:
    workbench.read_experiment("absent.yaml")
except workbench.ConfigError as error:
    refused = str(error)
assert issubclass(workbench.CalibrationError, workbench.CandidateError)

print(
    json.dumps(
        {
            "candidates": [evaluation.candidate.id for evaluation in seen],
            "stages": len(started),
            "front": [member.id for member in front],
            "recommended": recommended.id,
            "rows": rows,
            "again": again.recommendation == recommendation,
            "layers": len(calibrated.layers),
            "compared": len(comparison.rows),
            "labels": [answer["label"] for answer in answers],
            "logits": outputs["logits"].tolist(),
            "refused": refused,
        }
    )
)
