// Pool of large buffers for results and temporaries; freed buffers are reused. Getting zeroed pages from the system
// takes longer than filling them.
#pragma once

#include <cstddef>

namespace regard {

void* acquire_buffer(size_t bytes);  // throws std::bad_alloc
void release_buffer(void* data, size_t bytes);

// From keep_buffers(true) to keep_buffers(false), which may be nested, the pool keeps all that was in use at once.
void keep_buffers(bool keep);

}  // namespace regard
