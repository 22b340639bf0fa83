// A bank in memory, in ordinary C++: nothing in this file knows of files, logs or crashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

struct Transfer {
    std::string from, to;
    std::int64_t amount;
    std::string note;
};

struct Account {
    std::int64_t balance;
    std::vector<std::uint64_t> transfers; // their numbers, oldest first
};

class Bank {
public:
    static constexpr std::size_t kRecent = 100;

    void open_account(const std::string &name, std::int64_t balance)
    {
        if (!accounts_.try_emplace(name, Account{balance, {}}).second)
            throw std::invalid_argument("there is an account " + name);
        deposited_ += balance;
    }

    // Moves money and returns the number of the transfer. Throws, and changes nothing, when it cannot.
    std::uint64_t transfer(const std::string &from, const std::string &to, std::int64_t amount)
    {
        if (from == to)
            throw std::invalid_argument(from + " would pay itself");
        Account &giver = accounts_.at(from), &taker = accounts_.at(to);
        if (giver.balance < amount)
            throw std::runtime_error(from + " has only " + std::to_string(giver.balance));
        const std::uint64_t number = journal_.empty() ? 1 : journal_.rbegin()->first + 1;
        // What needs memory comes first: where there is none, it throws, and nothing has changed.
        std::map<std::uint64_t, Transfer> entry;
        entry.emplace(number, Transfer{from, to, amount, from + " pays " + to + " " + std::to_string(amount)});
        make_room(giver.transfers);
        make_room(taker.transfers);
        recent_.push_back(entry.begin()->second.note);
        // From here on nothing throws.
        if (recent_.size() > kRecent)
            recent_.pop_front();
        journal_.merge(entry);
        giver.transfers.push_back(number);
        taker.transfers.push_back(number);
        giver.balance -= amount;
        taker.balance += amount;
        return number;
    }

    // Forgets the oldest transfers, but for the newest `keep`.
    void forget(std::size_t keep)
    {
        while (journal_.size() > keep) {
            const auto oldest = journal_.begin();
            for (const std::string *name : {&oldest->second.from, &oldest->second.to}) {
                auto &numbers = accounts_.at(*name).transfers;
                numbers.erase(numbers.begin());
            }
            journal_.erase(oldest);
        }
    }

    std::optional<std::int64_t> balance(const std::string &name) const
    {
        const auto account = accounts_.find(name);
        return account == accounts_.end() ? std::nullopt : std::optional(account->second.balance);
    }

    std::uint64_t last_transfer() const { return journal_.empty() ? 0 : journal_.rbegin()->first; }
    std::size_t account_count() const { return accounts_.size(); }

    // Walks every structure and holds them against each other. Empty when all is well.
    std::string audit() const;

private:
    // For one more number.
    static void make_room(std::vector<std::uint64_t> &numbers)
    {
        if (numbers.size() == numbers.capacity())
            numbers.reserve(2 * numbers.size() + 1);
    }

    std::unordered_map<std::string, Account> accounts_;
    std::map<std::uint64_t, Transfer> journal_;
    std::deque<std::string> recent_;
    std::int64_t deposited_ = 0;
};

inline std::string Bank::audit() const
{
    std::int64_t sum = 0;
    std::size_t mentions = 0;
    for (const auto &[name, account] : accounts_) {
        sum += account.balance;
        mentions += account.transfers.size();
        std::uint64_t before = 0;
        for (const std::uint64_t number : account.transfers) {
            const auto found = journal_.find(number);
            if (found == journal_.end())
                return name + " mentions transfer " + std::to_string(number) + ", which is not there";
            if (number <= before || (found->second.from != name && found->second.to != name))
                return name + " mentions transfer " + std::to_string(number) + " wrongly";
            before = number;
        }
    }
    if (sum != deposited_)
        return "the balances make " + std::to_string(sum) + ", but " + std::to_string(deposited_) + " was paid in";
    if (mentions != 2 * journal_.size())
        return std::to_string(mentions) + " mentions of " + std::to_string(journal_.size()) + " transfers";
    std::uint64_t expected = journal_.empty() ? 0 : journal_.begin()->first;
    for (const auto &[number, transfer] : journal_) {
        if (number != expected++)
            return "transfer " + std::to_string(number) + " follows a gap";
        if (transfer.note != transfer.from + " pays " + transfer.to + " " + std::to_string(transfer.amount))
            return "the note of transfer " + std::to_string(number) + " is damaged";
    }
    auto transfer = journal_.rbegin();
    for (auto note = recent_.rbegin(); note != recent_.rend() && transfer != journal_.rend(); ++note, ++transfer)
        if (*note != transfer->second.note)
            return "the recent notes differ from the journal at transfer " + std::to_string(transfer->first);
    return {};
}
