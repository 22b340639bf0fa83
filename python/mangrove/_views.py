"""Keys, values and items as sets, over the iterators of the native module."""

from collections.abc import ItemsView, KeysView, ValuesView


class Keys(KeysView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._records("keys", False)

    def __reversed__(self):
        return self._mapping._records("keys", True)


class Values(ValuesView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._records("values", False)

    def __reversed__(self):
        return self._mapping._records("values", True)

    def __contains__(self, value):
        return any(found == value for found in self)


class Items(ItemsView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._records("items", False)

    def __reversed__(self):
        return self._mapping._records("items", True)


class Views:
    """Each walk over a view is of one instant."""

    __slots__ = ()

    def keys(self):
        return Keys(self)

    def values(self):
        return Values(self)

    def items(self):
        return Items(self)
