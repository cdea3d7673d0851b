/* What Python.h asks of 64-bit macOS and Windows when only the limited API is used, for the wheels that
 * tests/dist/build_wheels.py builds for them on another system. The real file is written when Python itself is built. */
#define ALIGNOF_SIZE_T 8
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_OFF_T 8
#define SIZEOF_PID_T 4
#define SIZEOF_SHORT 2
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T 8
#define SIZEOF_VOID_P 8
#if defined(_WIN32)
#define MS_WIN32
#define MS_WIN64
#define MS_WINDOWS
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
#else
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
#endif
