"""One value to its fields, in plain Python, as the parser of Spark's CSV (univocity) finds them.

It decides what the kernel leaves: quotes inside fields, escapes, text after a closing quote, lines that break off. A
quote in a quoted field that nothing escapes makes the field go on to the next separator, quotes and all
(STOP_AT_DELIMITER).
"""

from __future__ import annotations

from kafkalog_spark.typed.csv_options import NONE, CsvOptions

LINE = "\uffff"
"""What ends a line: from_csv sets this, which no text has, so that a value is one line whatever is in it."""
_UNSAID_COMMENT = "#"
"""What univocity takes for a comment's sign where nobody said one; it counts for nothing but the last field."""


class _End(Exception):
    """The text has no more characters."""


class CsvTokens:
    """Fields of texts, one text after the other. `seen`: what was read of the last one, without a line break at its
    end; None for nothing."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._text, self._at, self._begin = "", 0, 0
        self._ch = self._prev = NONE
        self._unescaped = self._trim = False
        self._field: list[str] = []
        self._fields: list[str] = []

    def fields(self, text: str) -> list[str] | None:
        """None where there is no line, or a comment."""
        self._text, self._at = text, 0
        self._fields, self._field = [], []
        self._ch = self._prev = NONE
        self._unescaped = self._trim = False
        self._begin = self._at
        if not text:
            return None
        try:
            while True:
                self._begin = self._at
                self._step()
                if self._ch == self._options.comment:
                    self._skip_comment()
                    return None
                self._line()
                if self._fields:
                    return self._fields
        except _End:
            return self._at_end()

    @property
    def seen(self) -> str | None:
        """See the class."""
        found = self._text[self._begin : self._at]
        if not found:
            return None
        return found[:-2] if found.endswith("\r\n") else found[:-1] if found[-1] in "\r\n" else found

    # ---- characters

    def _step(self) -> None:
        """The next character into `_ch`, which stays where there is none."""
        if self._at >= len(self._text):
            raise _End
        self._ch = self._text[self._at]
        self._at += 1

    def _stops(self) -> bool:
        return self._ch in (self._options.separator, LINE)

    def _take_until(self, *stops: str) -> None:
        """Characters into the field. At the end of the text `_ch` is the one that this began with."""
        first = self._ch
        try:
            while self._ch not in stops:
                self._field.append(self._ch)
                self._step()
        except _End:
            self._ch = first
            raise

    def _put_empty(self) -> None:
        self._fields.append(self._options.null)

    def _put(self, *, trim: bool = False) -> None:
        text = "".join(self._field)
        self._field = []
        if trim:
            text = _trimmed(text)
        self._fields.append(text or self._options.empty)

    # ---- a line

    def _line(self) -> None:
        options = self._options
        self._skip_blanks()
        while self._ch != LINE:
            self._skip_blanks()
            if self._stops():
                self._put_empty()
            else:
                self._prev, self._unescaped, self._trim = NONE, False, False
                if self._ch == options.quote and (whole := self._quoted_whole()) is not None:
                    self._fields.append(whole or options.empty)
                    self._step_after_quote()
                    continue
                if self._ch == options.quote:
                    self._quoted()
                    self._put(trim=self._trim)
                else:
                    self._plain()
            if self._ch != LINE:
                self._step()
                if self._ch == LINE:
                    self._put_empty()

    def _quoted_whole(self) -> str | None:
        """A quoted field that ends before a separator, on its line, without anything to escape; None for others."""
        options, text = self._options, self._text
        for at in range(self._at, len(text) - 1):
            ch, after = text[at], text[at + 1]
            if ch == options.quote:
                if text[at - 1] == options.escape or after not in (options.separator, LINE):
                    return None
                begin, self._at = self._at, at + 1
                return text[begin:at]
            if ch == LINE or (ch == options.escape and after in (options.quote, options.escape_of_escape)):
                return None
        return None

    def _step_after_quote(self) -> None:
        self._step()
        if self._ch == self._options.separator:
            self._step()
            if self._ch == LINE:
                self._put_empty()

    def _skip_comment(self) -> None:
        """To the end of the line. Where the text ends with it nothing counts as seen, unless it is the sign alone."""
        end = self._text.find(LINE, self._at)
        if 0 <= end < len(self._text) - 1:
            self._at = end + 1
        elif self._at < len(self._text):
            self._begin = self._at = len(self._text)

    def _skip_blanks(self) -> None:
        if self._options.trims_before:
            while self._ch <= " " and not self._stops() and self._ch != self._options.quote:
                self._step()

    def _plain(self) -> None:
        """A field without quotes. Blank ones are null before a separator, and empty at the end of the text."""
        self._trim = self._options.trims_after
        self._take_until(self._options.separator, LINE)
        text = "".join(self._field)
        self._field = []
        self._fields.append((_trimmed(text) if self._trim else text) or self._options.null)

    def _to_separator(self) -> None:
        """What is left of a field that turned out to have a quote too many."""
        self._field.insert(0, self._options.quote)
        self._step()
        self._trim = self._options.trims_after
        self._take_until(self._options.separator, LINE)

    def _quoted(self) -> None:
        """From the opening quote to the character after the field."""
        quote, escape = self._options.quote, self._options.escape
        self._step()
        while not (self._prev == quote and (self._ch <= " " or self._stops())):
            if self._ch not in (quote, escape):
                if self._prev == quote:
                    self._unescaped = True
                    self._field += (quote, self._ch)
                    self._prev = self._ch
                    self._again()
                    return
                if self._prev == escape and escape != NONE:
                    self._field.append(escape)
                self._take_until(quote, escape, self._options.escape_of_escape)
                self._prev = self._ch
                self._step()
            else:
                self._escape()
                self._prev = self._ch
                self._step()
                if self._unescaped and self._stops():
                    return
        if not self._stops():
            self._after_quote()

    def _again(self) -> None:
        if self._prev == NONE:
            self._quoted()
        else:
            self._to_separator()

    def _after_quote(self) -> None:
        """White space after the closing quote, which is nothing, and what follows it, which makes it a part."""
        space: list[str] = []
        while True:
            space.append(self._ch)
            self._step()
            if self._ch == LINE:
                return
            if self._ch > " " or self._ch == self._options.separator:
                break
        if self._ch != self._options.separator:
            self._field += (self._options.quote, *space, self._ch)
            self._prev = self._ch
            self._again()

    def _escape(self) -> None:
        """A quote or an escape in a quoted field, by the character before it."""
        options = self._options
        if self._ch == options.escape and self._prev == options.escape_of_escape != NONE:
            self._field.append(options.escape)
            self._ch = NONE
        elif self._prev == options.escape:
            if self._ch == options.quote:
                self._field.append(options.quote)
                self._ch = NONE
            else:
                self._field.append(self._prev)
        elif self._ch == options.quote and self._prev == options.quote:
            self._field.append(options.quote)
        elif self._prev == options.quote:
            self._quote_inside()

    def _quote_inside(self) -> None:
        """A closing quote before an escape: both are text, and quotes count for something up to the separator."""
        options = self._options
        self._field.append(options.quote)
        self._prev = self._ch
        while not self._stops():
            if self._ch not in (options.quote, options.escape):
                if self._prev == options.quote:
                    self._quote_inside()
                    return
                self._field.append(self._ch)
            else:
                self._escape()
            self._prev = self._ch
            self._step()

    # ---- the end of the text

    def _at_end(self) -> list[str] | None:
        options = self._options
        complete = False
        if self._ch == options.quote:
            if self._prev == options.quote:
                complete = True
            elif not self._unescaped:
                self._field.append(options.quote)
        if self._prev != NONE and not self._stops() and self._ch != (options.comment or _UNSAID_COMMENT):
            complete = True
        if self._field or complete:
            self._put(trim=self._trim)
        elif self._at > self._begin:
            self._put_empty()
        return self._fields or None


def _trimmed(text: str) -> str:
    return text.rstrip("".join(map(chr, range(33))))
