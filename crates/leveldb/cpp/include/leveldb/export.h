/* export.h: marks what programs may use of the shared library. Everything else in it is hidden. */
#ifndef MANGROVE_LEVELDB_EXPORT_H
#define MANGROVE_LEVELDB_EXPORT_H

#ifndef LEVELDB_EXPORT
#define LEVELDB_EXPORT __attribute__((visibility("default")))
#endif

#endif
