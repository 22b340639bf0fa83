/*
 * mangrove_heap.hpp: durable transactions for C++17, over mangrove.h. Header only.
 *
 *     struct account { std::uint64_t balance; account *next; };
 *
 *     mangrove::heap heap("bank"); // created when it is missing
 *     auto left = heap.transaction([&](mangrove::tx &tx) {
 *         account *from = tx.root<account>("bank");
 *         account *to = tx.load(&from->next);
 *         auto has = tx.load(&from->balance);
 *         if (has < amount) throw not_covered(); // everything is undone, and the caller gets the exception
 *         tx.store(&from->balance, has - amount);
 *         tx.store(&to->balance, tx.load(&to->balance) + amount);
 *         return has - amount;
 *     }); // durable when it returns
 *
 * A body may run several times: what it does other than through its `tx` must be harmless to repeat. Pointers into
 * the heap are ordinary pointers, the same in every process. A body never follows them itself: it takes the address
 * of a member (`&from->next`), and loads or stores there through its `tx`. It stores only trivially copyable types,
 * and no pointers to memory outside of the heap.
 *
 * Exceptions.  An exception that leaves the body undoes the transaction and reaches the caller of `transaction`.
 *   Accesses throw `mangrove::error` where they fail, and `mangrove::interrupted`, which is no std::exception, when
 *   the body must run again: do not catch that. A body that does is run again when it returns.
 */
#ifndef MANGROVE_HEAP_HPP
#define MANGROVE_HEAP_HPP

#include <mangrove.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace mangrove {

// An error of the library: its message, and its status.
class error : public std::runtime_error {
public:
    error(mangrove_status status, const char *message) : std::runtime_error(message), status_(status) {}

    mangrove_status status() const noexcept { return status_; }

private:
    mangrove_status status_;
};

// Thrown by accesses when the body must run again. Only `transaction` and `read` catch it.
struct interrupted {};

namespace detail {

template <class T> struct same { // keeps T from being deduced
    using type = T;
};

inline mangrove_status need(mangrove_status status)
{
    if (status == MANGROVE_TX_STOP) throw interrupted();
    if (status < 0) throw error(status, mangrove_last_error());
    return status;
}

// A name as the library takes it. A NUL would end the name early, so that it names another root. For such a name the
// library gets bytes that are no UTF-8 (a NUL as two bytes); it refuses them, and undoes the transaction as for every
// wrong argument.
inline const char *text(const std::string &name) noexcept
{
    return name.find('\0') == std::string::npos ? name.c_str() : "\xc0\x80";
}

template <class T> constexpr void must_be_storable()
{
    static_assert(std::is_trivially_copyable_v<T>, "what lies in a heap is copied byte by byte, and must be so");
}

} // namespace detail

// A transaction, for its body. Every member throws as the head of this file states; after the transaction has ended it
// throws an error with MANGROVE_ERR_TX_MISPLACED.
class tx {
public:
    explicit tx(mangrove_tx *handle) noexcept : handle_(handle) {}

    template <class T> std::remove_const_t<T> load(T *at) const
    {
        using value = std::remove_const_t<T>;
        detail::must_be_storable<value>();
        alignas(value) unsigned char bytes[sizeof(value)];
        read(at, bytes, sizeof bytes);
        return *std::launder(reinterpret_cast<value *>(bytes));
    }

    template <class T> void store(T *at, const typename detail::same<T>::type &value) const
    {
        detail::must_be_storable<T>();
        write(at, &value, sizeof value);
    }

    void read(const void *at, void *into, std::size_t len) const
    {
        detail::need(mangrove_tx_read(handle_, at, into, len));
    }

    void write(void *at, const void *from, std::size_t len) const
    {
        detail::need(mangrove_tx_write(handle_, at, from, len));
    }

    // A new block that holds `value`.
    template <class T> T *make(const T &value) const
    {
        T *at = static_cast<T *>(alloc(sizeof(T), alignof(T)));
        store(at, value);
        return at;
    }

    // A new array of `count` values, every byte zero.
    template <class T> T *make_array(std::size_t count) const
    {
        detail::must_be_storable<T>();
        // More than there can be: the library refuses it, and undoes the transaction whatever the body does then.
        const std::size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
        void *at;
        detail::need(mangrove_tx_alloc_zeroed(handle_, bytes, alignof(T), &at));
        return static_cast<T *>(at);
    }

    // A new block of undefined content.
    void *alloc(std::size_t bytes, std::size_t align = 0) const
    {
        void *at;
        detail::need(mangrove_tx_alloc(handle_, bytes, align, &at));
        return at;
    }

    // Frees a block; what lies in it is not destroyed, which trivially copyable types need not be.
    void free(void *at) const { detail::need(mangrove_tx_free(handle_, at)); }

    // What the root points to; nullptr if there is no such root. A name that holds a NUL is refused, as any wrong
    // argument is.
    template <class T> T *root(const std::string &name) const
    {
        void *at;
        detail::need(mangrove_tx_root(handle_, detail::text(name), sizeof(T), &at));
        return static_cast<T *>(at);
    }

    template <class T> void set_root(const std::string &name, T *at) const
    {
        detail::need(mangrove_tx_set_root(handle_, detail::text(name), at, sizeof(T)));
    }

    // Whether there was one.
    bool remove_root(const std::string &name) const
    {
        return detail::need(mangrove_tx_remove_root(handle_, detail::text(name))) == MANGROVE_OK;
    }

    // Undoes the transaction and runs it again when something that it has read has changed.
    [[noreturn]] void retry() const
    {
        detail::need(mangrove_tx_retry(handle_));
        throw interrupted();
    }

    void privatise() const { detail::need(mangrove_tx_privatise(handle_)); }

    mangrove_tx *handle() const noexcept { return handle_; }

private:
    mangrove_tx *handle_;
};

namespace detail {

// Lets what a handler has caught go on. AddressSanitizer has code before a `throw` that looks at the stack, and fails
// where the end of a thread has unwound it; a function without instrumentation has no such code.
[[noreturn]]
#ifdef __GNUC__
__attribute__((noinline, no_sanitize_address))
#endif
inline void pass_on()
{
    throw;
}

// One call of `transaction` or `read`: the body, and what its last run left.
template <class Body, class Answer> struct call {
    using kept = std::conditional_t<std::is_void_v<Answer>, std::monostate, Answer>;

    Body &body;
    std::optional<kept> answer;
    std::exception_ptr thrown;

    // An exception is kept until the library has undone the run: a body that conflicted with another transaction
    // runs again, and its exception is dropped. What is no C++ exception passes through: the end of the thread
    // (pthread_exit, a cancellation), which must not be held up.
    static int run(mangrove_tx *handle, void *self)
    {
        call &it = *static_cast<call *>(self);
        it.answer.reset();
        it.thrown = nullptr;
        try {
            mangrove::tx tx(handle);
            if constexpr (std::is_void_v<Answer>) {
                it.body(tx);
                it.answer.emplace();
            } else {
                it.answer.emplace(it.body(tx));
            }
            return MANGROVE_OK;
        } catch (const interrupted &) {
            return MANGROVE_TX_STOP;
        } catch (...) {
            it.thrown = std::current_exception();
            if (!it.thrown) pass_on();
            return 1;
        }
    }
};

template <class Run, class Body> auto transact(Run run, const mangrove_heap *heap, Body &body)
{
    using answer = std::invoke_result_t<Body &, tx &>;
    static_assert(!std::is_reference_v<answer>, "a body returns a value: what it refers to may change at once");
    call<Body, answer> one{body, {}, {}};
    const mangrove_status status = run(heap, &call<Body, answer>::run, &one, nullptr);
    if (one.thrown) std::rethrow_exception(one.thrown);
    need(status);
    if constexpr (!std::is_void_v<answer>) return std::move(*one.answer);
}

} // namespace detail

// Runs `body(tx &)` as one transaction on `heap` and returns what it returns, when that is durable.
template <class Body> auto transaction(const mangrove_heap *heap, Body &&body)
{
    return detail::transact(mangrove_transaction, heap, body);
}

// As `transaction`, for a body that rarely or never writes.
template <class Body> auto read(const mangrove_heap *heap, Body &&body)
{
    return detail::transact(mangrove_transaction_read, heap, body);
}

// An open heap. Its destructor closes it; `close` also throws what failed.
class heap {
public:
    explicit heap(const std::string &path, const mangrove_heap_options *options = nullptr)
    {
        if (path.find('\0') != std::string::npos)
            throw error(MANGROVE_ERR_INVALID_ARGUMENT, "the path of the heap holds a NUL byte, and no path can");
        detail::need(mangrove_heap_open(path.c_str(), options, &handle_));
    }

    heap(heap &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    heap &operator=(heap &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~heap()
    {
        if (handle_ != nullptr) mangrove_heap_close(handle_);
    }

    void close()
    {
        mangrove_heap *handle = handle_;
        const mangrove_status status = mangrove_heap_close(handle);
        const bool stays = status == MANGROVE_ERR_IN_USE || status == MANGROVE_ERR_UNSUPPORTED ||
                           status == MANGROVE_ERR_TX_MISPLACED;
        if (!stays) handle_ = nullptr;
        detail::need(status);
    }

    template <class Body> auto transaction(Body &&body) const { return mangrove::transaction(handle_, body); }
    template <class Body> auto read(Body &&body) const { return mangrove::read(handle_, body); }

    void sync() const { detail::need(mangrove_heap_sync(handle_)); }

    mangrove_heap *handle() const noexcept { return handle_; }

private:
    mangrove_heap *handle_ = nullptr;
};

template <class Body> auto transaction(const heap &heap, Body &&body)
{
    return transaction(heap.handle(), body);
}

} // namespace mangrove

#endif
