// Selection of the instructions of the bfloat16 forward pass at run time.
#pragma once

#include <string>
#include <vector>

#include "tile_kernels.h"

namespace regard {

// Null: bfloat16 is converted to float32. By default AMX where the system permits it, or AVX512-BF16 where that is
// faster than float32; neither unless the best instruction set is in use.
const TileKernelTable* tile_kernels();
std::vector<std::string> tile_implementations();  // supported here: some of AMX, AVX512-BF16, C++, float32
bool use_tiles(const std::string&);               // one of these, or "auto", for tests; false if not supported

}  // namespace regard
