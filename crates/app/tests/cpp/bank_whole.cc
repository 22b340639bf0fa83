// The bank of the C++ example where memory ends at each allocation of a transfer in turn: a transfer that throws has
// changed nothing.
#include "bank.h"
#include "scarce.h"

#include <cstdio>
#include <cstdlib>
#include <new>

static void check(bool well, const char *what, int round)
{
    if (well)
        return;
    std::fprintf(stderr, "round %d: %s\n", round, what);
    std::exit(1);
}

int main()
{
    Bank bank;
    const std::string from = "an account with a long name", to = "another account with a long name";
    bank.open_account(from, 1000);
    bank.open_account(to, 0);
    int thrown = 0;
    // Vectors grow in some of the rounds only, and recent notes go in the last.
    for (int round = 1; round <= 120; round++) {
        for (long left = 0;; left++) {
            allocations_left = left;
            try {
                check(bank.transfer(from, to, 1) == static_cast<std::uint64_t>(round), "another number", round);
                allocations_left = -1;
                break;
            } catch (const std::bad_alloc &) {
                allocations_left = -1;
                thrown++;
            }
            const std::string complaint = bank.audit();
            check(complaint.empty(), complaint.c_str(), round);
            check(bank.balance(from) == 1001 - round && bank.balance(to) == round - 1, "money has moved", round);
            check(bank.last_transfer() == static_cast<std::uint64_t>(round - 1), "a transfer is there", round);
        }
        check(bank.audit().empty() && bank.balance(to) == round, "the transfer is not whole", round);
    }
    check(thrown > 120, "memory did not end", 0);
    return 0;
}
