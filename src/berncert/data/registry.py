"""The official data sets: their files by name and checksum, their classes, and where they are published.

The checksums are the publishers' own (CIFAR's archives), those with which torchvision (.gz, .mat, pickled batches) and
MXNet (binary batches) check the same files, and, for idx files, those of the content of the checked .gz files. SVHN is
also in use rebuilt from its full-number images, and CIFAR-100 as its first images only: these have checksums of their
own, and a data set read from them says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from berncert.data import formats

REBUILT = "cropped anew from the full-number images: a few values may be off by one grey level"

CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man
    maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail
    snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout
    tulip turtle wardrobe whale willow_tree wolf woman worm
"""


class File(NamedTuple):
    """The name of an unpacked file and the contents that it may have."""

    name: str
    known: Mapping[str, str | None]
    """Checksum -> how that content differs from the whole official file, if it does."""


class Published(NamedTuple):
    """A file as it is published: plain, packed, or an archive of several."""

    name: str
    checksum: str


class Edition(NamedTuple):
    """One of the forms in which a split is published."""

    read: Callable[..., formats.Batch]
    batches: tuple[tuple[File, ...], ...]
    """The files in the order of their images; `read` takes the contents of one batch."""
    published: tuple[Published, ...] = ()
    folder: str = ""
    """The folder that contains the files within an archive, and once it is unpacked."""

    @property
    def files(self) -> tuple[File, ...]:
        """The files of all batches."""
        return tuple(file for batch in self.batches for file in batch)


class Official(NamedTuple):
    """An official data set. Any edition of a split can be read; the first one is downloaded."""

    classes: tuple[str, ...]
    homes: tuple[str, ...]
    """Addresses that all publish the same files."""
    folders: tuple[str, ...]
    """Subfolders of a data folder in which the files may be; downloads go to the first."""
    editions: Mapping[str, tuple[Edition, ...]]


def _official(name: str, *checksums: str) -> File:
    return File(name, dict.fromkeys(checksums))


def _idx(prefix: str, images: tuple[str, str], labels: tuple[str, str]) -> tuple[Edition, ...]:
    """MNIST's files; each has the md5 of its content, then that of the .gz file in which it is published."""
    files = {f"{prefix}-images-idx3-ubyte": images, f"{prefix}-labels-idx1-ubyte": labels}
    batch = tuple(_official(name, f"md5:{md5}") for name, (md5, _) in files.items())
    packed = tuple(Published(f"{name}.gz", f"md5:{md5}") for name, (_, md5) in files.items())
    return (Edition(formats.read_idx, (batch,), packed),)


def _archived(
    read: Callable[..., formats.Batch], archive: str, md5: str, folder: str, files: Mapping[str, str]
) -> Edition:
    """An edition whose files are published in one archive; each file is a batch and has a checksum."""
    batches = tuple((_official(name, known),) for name, known in files.items())
    return Edition(read, batches, (Published(archive, f"md5:{md5}"),), folder)


_read_cifar100_pickle = partial(formats.read_cifar_pickle, key="fine_labels")
_cifar10_binary = partial(
    _archived, formats.read_cifar_binary, "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin",
)  # fmt: skip
_cifar10_pickle = partial(
    _archived, formats.read_cifar_pickle, "cifar-10-python.tar.gz",
    "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py",
)  # fmt: skip
_cifar100_binary = partial(
    _archived, partial(formats.read_cifar_binary, label_bytes=2), "cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary",
)  # fmt: skip
_cifar100_pickle = partial(
    _archived, _read_cifar100_pickle, "cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python",
)  # fmt: skip


def _mat(name: str, known: Mapping[str, str | None]) -> Edition:
    """SVHN's plain file; the checksum of the whole official file is that of the published one."""
    whole = tuple(Published(name, one) for one, part in known.items() if part is None)
    return Edition(formats.read_mat, ((File(name, known),),), whole)


def _beginning(name: str, md5: str, part: str) -> Edition:
    """The beginning of one of CIFAR-100's pickles."""
    return Edition(_read_cifar100_pickle, ((File(name, {f"md5:{md5}": part}),),))


DIGITS = tuple("0123456789")

OFFICIAL: dict[str, Official] = {
    "mnist": Official(
        classes=DIGITS,
        homes=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        folders=("mnist", "MNIST/raw"),
        editions={
            "train": _idx(
                "train",
                images=("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                labels=("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
            ),
            "test": _idx(
                "t10k",
                images=("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
                labels=("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        },
    ),
    "fashion_mnist": Official(
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        homes=(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        folders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        editions={
            "train": _idx(
                "train",
                images=("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                labels=("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
            ),
            "test": _idx(
                "t10k",
                images=("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
                labels=("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        },
    ),
    "svhn": Official(
        classes=DIGITS,
        homes=("http://ufldl.stanford.edu/housenumbers/",),
        folders=("svhn",),
        editions={
            "train": (
                _mat("train_32x32.mat", {"md5:e26dedcc434d2e4c54c9b2d4a06d8373": None}),
                _mat(
                    "train_32x32_first45000.mat",
                    {"md5:2d222516030f4f11a74c8a61411bd076": f"the first 45000 of 73257, {REBUILT}"},
                ),
            ),
            "test": (
                _mat(
                    "test_32x32.mat",
                    {
                        "md5:eb5a983be6a315427106f1b164d9cef3": None,
                        "md5:839566962e9e8364a7b2e7375b8c62b8": f"all 26032, {REBUILT}",
                    },
                ),
            ),
        },
    ),
    "cifar10": Official(
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        homes=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        folders=("cifar10",),
        editions={
            "train": (
                _cifar10_binary(
                    {
                        "data_batch_1.bin": "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
                        "data_batch_2.bin": "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
                        "data_batch_3.bin": "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
                        "data_batch_4.bin": "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
                        "data_batch_5.bin": "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
                    }
                ),
                _cifar10_pickle(
                    {
                        "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
                        "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
                        "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
                        "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
                        "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
                    }
                ),
            ),
            "test": (
                _cifar10_binary({"test_batch.bin": "sha1:67eb016db431130d61cd03c7ad570b013799c88c"}),
                _cifar10_pickle({"test_batch": "md5:40351d587109b95175f43aff81a1287e"}),
            ),
        },
    ),
    "cifar100": Official(
        classes=tuple(CIFAR100_CLASSES.split()),
        homes=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        folders=("cifar100",),
        editions={
            "train": (
                _cifar100_binary({"train.bin": "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e"}),
                _cifar100_pickle({"train": "md5:16019d7e3df5f24257cddd939b257f8d"}),
                _beginning("train_first1117", "3ee30142750d993fae99da1c66a0f750", "the first 1117 of 50000"),
            ),
            "test": (
                _cifar100_binary({"test.bin": "sha1:8fb6623e830365ff53cf14adec797474f5478006"}),
                _cifar100_pickle({"test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"}),
                _beginning("test_first916", "d79bd77ffe842bbb8fba3fac2ba559f9", "the first 916 of 10000"),
            ),
        },
    ),
}
