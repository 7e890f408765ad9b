"""Reasons why items are rejected or skipped: two closed lists."""

import enum

__all__ = ["Reason", "Skipped"]


class Reason(enum.StrEnum):
    """Why an item was rejected. The list is closed: reports group by it."""

    FIELD_COUNT = "field_count"
    NOT_AN_INTEGER = "not_an_integer"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_BOOL = "not_a_bool"
    OUT_OF_RANGE = "out_of_range"
    NOT_FLOAT32 = "not_float32"
    INVALID_ENCODING = "invalid_encoding"
    NOT_A_TIMESTAMP = "not_a_timestamp"
    WRONG_TYPE = "wrong_type"
    WRONG_SHAPE = "wrong_shape"
    MISSING_VALUE = "missing_value"
    UNKNOWN_LABEL = "unknown_label"
    MALFORMED = "malformed"
    BAD_SPLIT = "bad_split"
    IMAGE_WITHOUT_LABEL = "image_without_label"
    LABEL_WITHOUT_IMAGE = "label_without_image"
    BAD_BOX = "bad_box"
    SIZE_MISMATCH = "size_mismatch"
    UNREADABLE = "unreadable"
    EMPTY_FILE = "empty_file"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    DAMAGED_IMAGE = "damaged_image"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_MANY_BYTES = "too_many_bytes"
    ANIMATED_IMAGE = "animated_image"
    DECODER_CRASH = "decoder_crash"
    TOO_SLOW = "too_slow"
    RECORD_TOO_LARGE = "record_too_large"
    CHANGED_DURING_RUN = "changed_during_run"
    UNSAFE_PATH = "unsafe_path"
    NOT_A_FILE = "not_a_regular_file"
    ENCRYPTED = "encrypted"
    UNSUPPORTED_METHOD = "unsupported_method"
    TOO_LARGE = "member_too_large"
    NESTED_ARCHIVE = "nested_archive"
    DAMAGED_MEMBER = "damaged_member"
    DUPLICATE_NAME = "duplicate_name"


class Skipped(enum.StrEnum):
    """Why an item of the source is left out on purpose. The list is closed."""

    HIDDEN = "hidden"
    OTHER_SUFFIX = "other_suffix"
    NOT_INCLUDED = "not_included"
    EXCLUDED = "excluded"
    BEYOND_LIMIT = "beyond_limit"
    DISCARDED = "discarded"
    DUPLICATE = "duplicate"
    NOT_SELECTED = "not_selected"
    REPEATED_HEADER = "repeated_header"
    END_MARK = "end_mark"
    NOT_REJECTED_BEFORE = "not_rejected_before"
