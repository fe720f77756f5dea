// What several tasks add to, they add to one after the other, in the order of the tasks: then the sum has the same bits
// for any number of threads. Tasks are begun in their order, so a task waits only for such as are under way or done.
#pragma once

#include <cstdint>

namespace regard {

// Wait until it is the turn of `mine`, or until all is given up. (In threads.cpp.)
void wait_for_turn(const int32_t* turn, int32_t mine, const bool* given_up);

static inline void next_turn(int32_t* turn, int32_t mine) { __atomic_store_n(turn, mine + 1, __ATOMIC_RELEASE); }

}  // namespace regard
