"""Packaging of beam-tfrecord; also what Beam's `--setup_file` is to be given."""

import pathlib
import runpy

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).resolve().parent
VERSION = runpy.run_path(str(ROOT / "beam_pipeline" / "version.py"))["__version__"]
README = ROOT / "README.md"

# tensorflow-cpu, a third of the size, is built for Linux on x86-64 only.
ON_LINUX_X86_64 = "sys_platform == 'linux' and platform_machine == 'x86_64'"
ELSEWHERE = "sys_platform != 'linux' or platform_machine != 'x86_64'"

TEST = [
    f"tensorflow-cpu>=2.18; {ON_LINUX_X86_64}",
    f"tensorflow>=2.18; {ELSEWHERE}",
    "tensorflow-datasets>=4.9.7",
    # 9 is the first that can end a test that hangs.
    "pytest>=9",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
    "webdataset>=1.0",
    "scikit-learn>=1.4",
    "pycocotools>=2.0.8",
    "pillow-heif>=1",
    "fastavro>=1.9",
    "polars>=1",
    "zstandard>=0.22",
    # The first that builds wheels by itself.
    "setuptools>=70.1",
    # Pinned: a new version of a tool must not turn a checkout red. Printed programs are
    # compared with what it makes of them.
    "ruff==0.17.*",
]

# Pinned for the same reason.
DOCS = ["sphinx==9.0.*", "myst-parser==5.*", "furo==2025.12.*"]

setup(
    name="beam-tfrecord",
    version=VERSION,
    description=(
        "Labelled images and CSV to sharded TFRecord datasets, on Apache Beam, "
        "without TensorFlow"
    ),
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="The beam-tfrecord maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        "tfrecord",
        "tensorflow",
        "apache-beam",
        "dataset",
        "images",
        "csv",
        "parquet",
        "keras",
        "pytorch",
        "machine-learning",
        "conversion",
    ],
    # `include`, or the tests would be installed as a top-level package too.
    packages=find_packages(include=["beam_pipeline*", "beam_tfrecord*", "transforms*"]),
    package_data={
        "": ["py.typed"],
        "beam_pipeline.page": ["*.jinja"],
        "beam_pipeline.reader_programs": ["*.jinja"],
    },
    python_requires=">=3.11",
    install_requires=[
        "apache-beam>=2.77,<3",
        # 24 is the first that casts a slice of texts to numbers as it does a copy.
        "pyarrow>=24",
        "numpy>=2",
        # Before 1.6 its C code is used only beside an old setuptools.
        "google-crc32c>=1.6",
        "protobuf>=5.26",
        # 2.2.2 is the first that is built for NumPy 2.
        "pandas>=2.2.2",
        # As Beam 2.77 wants it.
        "Pillow>=12.1.1",
        "pydantic>=2.7",
        "PyYAML>=6",
        "Jinja2>=3.1",
        # 8.4 is the first whose ParamType takes a type.
        "click>=8.4",
    ],
    extras_require={
        # 1.9 is the first that is built for Python 3.12.
        "avro": ["fastavro>=1.9"],
        "heif": ["pillow-heif>=1"],
        "s3": ["boto3>=1.36"],
        "gcs": ["google-cloud-storage>=2.16"],
        # The client alone knows no login but keys and tokens.
        "azure": ["azure-storage-blob>=12.19", "azure-identity>=1.15"],
        "dataflow": ["apache-beam[gcp]>=2.77,<3", "google-cloud-storage>=2.16"],
        "test": TEST,
        "clusters": [
            *TEST,
            "boto3>=1.36",
            "google-cloud-storage>=2.16",
            "azure-storage-blob>=12.19",
        ],
        "docs": DOCS,
        # Pinned for the same reason.
        "dev": [*TEST, *DOCS, "mypy==2.4.*", "types-PyYAML"],
    },
    entry_points={
        "console_scripts": [
            "beam-tfrecord = beam_pipeline.cli:program",
            "beam-tfrecord-worker = beam_pipeline.beam_internals.engine_worker:main",
        ]
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
)
