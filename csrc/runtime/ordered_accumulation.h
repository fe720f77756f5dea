// Tasks accumulate into shared output in task order, so results are deterministic for any thread count (a ticket lock
// with tickets fixed in advance). Tasks start in order, so a task waits only for tasks that run or are done.
#pragma once

#include <cstdint>

namespace regard {

// Wait until the ticket reaches `order`, or until `cancelled`. (Defined in threads.cpp.)
void wait_for_ticket(const int32_t* ticket, int32_t order, const bool* cancelled);

static inline void advance_ticket(int32_t* ticket, int32_t order) {
  __atomic_store_n(ticket, order + 1, __ATOMIC_RELEASE);
}

}  // namespace regard
