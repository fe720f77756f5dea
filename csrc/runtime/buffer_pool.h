// Pool of large buffers for results and temporaries; freed buffers are reused. Getting zeroed pages from the system
// takes longer than filling them.
#pragma once

#include <cstddef>

namespace regard {

void* acquire_buffer(size_t bytes);  // throws std::bad_alloc
void release_buffer(void* data, size_t bytes);

}  // namespace regard
