// Memory for large results, and for what a call works with. What one leaves behind when it is gone is kept for the next
// one: to get new pages from the system, and have them cleared, takes longer than to fill them.
#pragma once

#include <cstddef>

namespace regard {

void* take_room(size_t bytes);  // nullptr where there is none
void give_room(void* room, size_t bytes);

}  // namespace regard
