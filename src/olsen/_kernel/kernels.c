/* The kernels of one instruction set: this file is compiled once for each, which KERNELS and INSTRUCTION_SET name. */
#include "determinantal.h"
#include "lasso.h"
#include "paths.h"

#define POINTER(name, signature) name,
const struct kernels KERNELS = {INSTRUCTION_SET, KERNEL_LIST(POINTER)};
