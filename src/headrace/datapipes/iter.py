"""The classes of streams, by the names that users of TorchData know."""

from headrace.doors.datapipes.iter import CLASSES
from headrace.doors.datapipes.names import IterDataPipe

AISFileLister = CLASSES["AISFileLister"]
AISFileLoader = CLASSES["AISFileLoader"]
BatchAsyncMapper = CLASSES["BatchAsyncMapper"]
BatchMapper = CLASSES["BatchMapper"]
Batcher = CLASSES["Batcher"]
BucketBatcher = CLASSES["BucketBatcher"]
Bz2FileLoader = CLASSES["Bz2FileLoader"]
CSVDictParser = CLASSES["CSVDictParser"]
CSVParser = CLASSES["CSVParser"]
Collator = CLASSES["Collator"]
Concater = CLASSES["Concater"]
Cycler = CLASSES["Cycler"]
DataFrameMaker = CLASSES["DataFrameMaker"]
Decompressor = CLASSES["Decompressor"]
Demultiplexer = CLASSES["Demultiplexer"]
Dropper = CLASSES["Dropper"]
EndOnDiskCacheHolder = CLASSES["EndOnDiskCacheHolder"]
Enumerator = CLASSES["Enumerator"]
Extractor = CLASSES["Extractor"]
FSSpecFileLister = CLASSES["FSSpecFileLister"]
FSSpecFileOpener = CLASSES["FSSpecFileOpener"]
FSSpecSaver = CLASSES["FSSpecSaver"]
FileLister = CLASSES["FileLister"]
FileOpener = CLASSES["FileOpener"]
Filter = CLASSES["Filter"]
FlatMapper = CLASSES["FlatMapper"]
Flattener = CLASSES["Flattener"]
Forker = CLASSES["Forker"]
FullSync = CLASSES["FullSync"]
GDriveReader = CLASSES["GDriveReader"]
Grouper = CLASSES["Grouper"]
HashChecker = CLASSES["HashChecker"]
Header = CLASSES["Header"]
HttpReader = CLASSES["HttpReader"]
HuggingFaceHubReader = CLASSES["HuggingFaceHubReader"]
InBatchShuffler = CLASSES["InBatchShuffler"]
InMemoryCacheHolder = CLASSES["InMemoryCacheHolder"]
IndexAdder = CLASSES["IndexAdder"]
IoPathFileLister = CLASSES["IoPathFileLister"]
IoPathFileOpener = CLASSES["IoPathFileOpener"]
IoPathSaver = CLASSES["IoPathSaver"]
IterKeyZipper = CLASSES["IterKeyZipper"]
IterableWrapper = CLASSES["IterableWrapper"]
JsonParser = CLASSES["JsonParser"]
LengthSetter = CLASSES["LengthSetter"]
LineReader = CLASSES["LineReader"]
MapKeyZipper = CLASSES["MapKeyZipper"]
MapToIterConverter = CLASSES["MapToIterConverter"]
Mapper = CLASSES["Mapper"]
MaxTokenBucketizer = CLASSES["MaxTokenBucketizer"]
Multiplexer = CLASSES["Multiplexer"]
MultiplexerLongest = CLASSES["MultiplexerLongest"]
OnDiskCacheHolder = CLASSES["OnDiskCacheHolder"]
OnlineReader = CLASSES["OnlineReader"]
ParagraphAggregator = CLASSES["ParagraphAggregator"]
ParquetDataFrameLoader = CLASSES["ParquetDataFrameLoader"]
PinMemory = CLASSES["PinMemory"]
Prefetcher = CLASSES["Prefetcher"]
RandomSplitter = CLASSES["RandomSplitter"]
RarArchiveLoader = CLASSES["RarArchiveLoader"]
Repeater = CLASSES["Repeater"]
RoundRobinDemultiplexer = CLASSES["RoundRobinDemultiplexer"]
RoutedDecoder = CLASSES["RoutedDecoder"]
Rows2Columnar = CLASSES["Rows2Columnar"]
S3FileLister = CLASSES["S3FileLister"]
S3FileLoader = CLASSES["S3FileLoader"]
SampleMultiplexer = CLASSES["SampleMultiplexer"]
Sampler = CLASSES["Sampler"]
Saver = CLASSES["Saver"]
ShardExpander = CLASSES["ShardExpander"]
ShardingFilter = CLASSES["ShardingFilter"]
ShardingRoundRobinDispatcher = CLASSES["ShardingRoundRobinDispatcher"]
ShuffledFlatMapper = CLASSES["ShuffledFlatMapper"]
Shuffler = CLASSES["Shuffler"]
Slicer = CLASSES["Slicer"]
StreamReader = CLASSES["StreamReader"]
TFRecordLoader = CLASSES["TFRecordLoader"]
TarArchiveLoader = CLASSES["TarArchiveLoader"]
ThreadPoolMapper = CLASSES["ThreadPoolMapper"]
UnBatcher = CLASSES["UnBatcher"]
UnZipper = CLASSES["UnZipper"]
WebDataset = CLASSES["WebDataset"]
XzFileLoader = CLASSES["XzFileLoader"]
ZipArchiveLoader = CLASSES["ZipArchiveLoader"]
Zipper = CLASSES["Zipper"]
ZipperLongest = CLASSES["ZipperLongest"]

__all__ = [
    "AISFileLister",
    "AISFileLoader",
    "BatchAsyncMapper",
    "BatchMapper",
    "Batcher",
    "BucketBatcher",
    "Bz2FileLoader",
    "CSVDictParser",
    "CSVParser",
    "Collator",
    "Concater",
    "Cycler",
    "DataFrameMaker",
    "Decompressor",
    "Demultiplexer",
    "Dropper",
    "EndOnDiskCacheHolder",
    "Enumerator",
    "Extractor",
    "FSSpecFileLister",
    "FSSpecFileOpener",
    "FSSpecSaver",
    "FileLister",
    "FileOpener",
    "Filter",
    "FlatMapper",
    "Flattener",
    "Forker",
    "FullSync",
    "GDriveReader",
    "Grouper",
    "HashChecker",
    "Header",
    "HttpReader",
    "HuggingFaceHubReader",
    "InBatchShuffler",
    "InMemoryCacheHolder",
    "IndexAdder",
    "IoPathFileLister",
    "IoPathFileOpener",
    "IoPathSaver",
    "IterDataPipe",
    "IterKeyZipper",
    "IterableWrapper",
    "JsonParser",
    "LengthSetter",
    "LineReader",
    "MapKeyZipper",
    "MapToIterConverter",
    "Mapper",
    "MaxTokenBucketizer",
    "Multiplexer",
    "MultiplexerLongest",
    "OnDiskCacheHolder",
    "OnlineReader",
    "ParagraphAggregator",
    "ParquetDataFrameLoader",
    "PinMemory",
    "Prefetcher",
    "RandomSplitter",
    "RarArchiveLoader",
    "Repeater",
    "RoundRobinDemultiplexer",
    "RoutedDecoder",
    "Rows2Columnar",
    "S3FileLister",
    "S3FileLoader",
    "SampleMultiplexer",
    "Sampler",
    "Saver",
    "ShardExpander",
    "ShardingFilter",
    "ShardingRoundRobinDispatcher",
    "ShuffledFlatMapper",
    "Shuffler",
    "Slicer",
    "StreamReader",
    "TFRecordLoader",
    "TarArchiveLoader",
    "ThreadPoolMapper",
    "UnBatcher",
    "UnZipper",
    "WebDataset",
    "XzFileLoader",
    "ZipArchiveLoader",
    "Zipper",
    "ZipperLongest",
]
