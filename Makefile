# Each target makes what it needs; `run_local.sh` holds the commands.
.PHONY: quick check test smoke test-lowest test-clusters test-readers test-tutorials stress \
	bench bench-growth bench-readers bench-engines docs settings clean

BENCH_ARGS ?=

quick:
	./run_local.sh quick $(WHAT)

check:
	./run_local.sh check

docs:
	./run_local.sh docs

# After a change of beam_pipeline/settings/options.py.
settings:
	./run_local.sh setup dev
	.venv/bin/python scripts/write_keywords.py >beam_pipeline/settings/keywords.new
	mv beam_pipeline/settings/keywords.new beam_pipeline/settings/keywords.py

test:
	./run_local.sh test

test-lowest:
	./run_local.sh test-lowest

smoke:
	./run_local.sh smoke

test-clusters:
	./run_local.sh test-clusters

# The libraries that read what we write; rewrites the table of the docs.
test-readers: bench/.venv/.stamp bench/.venv-ray/.stamp bench/.venv-torch/.stamp
	./run_local.sh setup clusters
	.venv/bin/python -m pytest tests/opens_in

# The programs and notebooks of docs/tutorials; the last one in an environment with Airflow.
test-tutorials: bench/.venv-tutorials/.stamp
	bench/.venv-tutorials/bin/python -m pytest tests/tutorials
	./run_local.sh setup test
	.venv/bin/python -m pytest --override-ini=faulthandler_timeout=900 \
		tests/clusters/test_airflow.py

stress:
	./run_local.sh stress

bench: bench/.venv/.stamp bench/.venv-ray/.stamp
	./run_local.sh setup
	.venv/bin/python bench/run.py $(BENCH_ARGS)

bench-growth: bench/.venv/.stamp
	./run_local.sh setup
	.venv/bin/python bench/growth.py $(BENCH_ARGS)
	bench/.venv/bin/python bench/growth_plot.py docs/internals/growth.png

# Most readers are in one environment. TensorFlow is in another, and so are the peers of
# PyTorch's loader.
bench-readers: bench/.venv/.stamp bench/.venv-torch/.stamp bench/.venv-loader/.stamp
	./run_local.sh setup
	bench/.venv-torch/bin/python bench/readers.py --only lookups,rows,columns,batches \
		$(BENCH_ARGS)
	bench/.venv/bin/python bench/readers.py --only batches $(BENCH_ARGS)
	bench/.venv-loader/bin/python bench/readers.py --only loader $(BENCH_ARGS)

bench-engines:
	./run_local.sh setup
	.venv/bin/python bench/engines.py $(BENCH_ARGS)

# The peers' environments: apart, so that the project's own stays free of them, and Ray
# of the others.
bench/.venv/.stamp: bench/requirements.txt
	./run_local.sh setup
	.venv/bin/python -m venv --clear bench/.venv
	bench/.venv/bin/python -m pip install --quiet -r bench/requirements.txt
	touch $@

bench/.venv-ray/.stamp: bench/requirements-ray.txt
	./run_local.sh setup
	.venv/bin/python -m venv --clear bench/.venv-ray
	bench/.venv-ray/bin/python -m pip install --quiet -r bench/requirements-ray.txt
	touch $@

bench/.venv-torch/.stamp: bench/requirements-torch.txt
	./run_local.sh setup
	.venv/bin/python -m venv --clear bench/.venv-torch
	bench/.venv-torch/bin/python -m pip install --quiet -r bench/requirements-torch.txt
	touch $@

bench/.venv-loader/.stamp: bench/requirements-loader.txt
	./run_local.sh setup
	.venv/bin/python -m venv --clear bench/.venv-loader
	bench/.venv-loader/bin/python -m pip install --quiet -r bench/requirements-loader.txt
	touch $@

bench/.venv-tutorials/.stamp: tests/tutorials/requirements.txt setup.py
	./run_local.sh setup
	.venv/bin/python -m venv --clear bench/.venv-tutorials
	bench/.venv-tutorials/bin/python -m pip install --quiet -e . \
		pytest pytest-xdist hypothesis \
		-r tests/tutorials/requirements.txt
	touch $@

clean:
	rm -rf build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	rm -rf out/sample out/photos out/rows bench/data bench/results
	find beam_pipeline beam_tfrecord transforms tests bench -name __pycache__ -prune \
		-not -path 'bench/.venv*' -exec rm -rf {} +
