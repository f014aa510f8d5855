// Package resp reads and writes RESP, the protocol of Redis, without trust in what comes.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// MaxLine is the longest line: header, error or simple string.
	MaxLine = 8 << 10
	// MaxHead bounds what is read of a command before it is decided about, in bytes,
	// and MaxHeadArgs in arguments. What is longer is passed on piece by piece.
	MaxHead = 32 << 10
	// MaxHeadArgs is that in arguments.
	MaxHeadArgs = 1024
	// maxArgs is the largest number of arguments of a command, as Redis has it.
	maxArgs = 1 << 20
	// maxElements is the largest number of elements of one collection in a reply.
	maxElements = 1 << 31
	// MaxBulk is the longest value that passes.
	MaxBulk = 64 << 20
	// maxSmall is the longest string that is read as a whole where a value is not
	// expected: the name of a channel, the payload of a message.
	maxSmall = 1 << 20
)

// ErrProtocol is wrapped by errors about bytes that are not RESP as it is written here.
var ErrProtocol = errors.New("not the protocol of redis")

// ErrTooLong is wrapped by errors about what is valid, and longer than what passes.
var ErrTooLong = errors.New("longer than what passes")

// Wire reads RESP2 and RESP3. Nothing it holds grows with what is read: a value of any
// length passes through one buffer, and every length is checked before it is believed.
//
// That is why it is ours. The readers that Go libraries export (redcon, tidwall/resp,
// the resp3 of radix) hold a command or a string as a whole, of whatever length its
// header says, and the first two do not know RESP3; those of go-redis and rueidis are
// internal to them. A tree has tens of megabytes, and a proxy has no use for it but to
// pass it on. Where values are wanted, as for the last ones, the client is go-redis.
type Wire struct{ *bufio.Reader }

// NewWire reads RESP from a connection.
func NewWire(r io.Reader) Wire { return Wire{bufio.NewReaderSize(r, MaxLine)} }

// Line returns the next line without its end, until the next read.
func (w Wire) Line() ([]byte, error) {
	line, err := w.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, MaxLine)
	case err != nil:
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, fmt.Errorf("%w: a line without its end", ErrProtocol)
	}
	return line[:len(line)-2], nil
}

// Size reads the number behind the first byte of a line: 0 to most, or -1, which is
// null.
func Size(line []byte, most int) (int, error) {
	text := line[1:]
	if string(text) == "-1" {
		return -1, nil
	}
	if len(text) == 0 || len(text) > 10 || len(text) > 1 && text[0] == '0' {
		return 0, fmt.Errorf("%w: a length", ErrProtocol)
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: a length", ErrProtocol)
		}
		n = n*10 + int(c-'0')
	}
	if n > most {
		return 0, fmt.Errorf("%w: %d, at most %d", ErrTooLong, n, most)
	}
	return n, nil
}

// End reads what follows the bytes of a string.
func (w Wire) End() error {
	end, err := w.Peek(2)
	if err != nil {
		return Unexpected(err)
	}
	if end[0] != '\r' || end[1] != '\n' {
		return fmt.Errorf("%w: a string without its end", ErrProtocol)
	}
	_, err = w.Discard(2)
	return err
}

// Unexpected is an error of a read in the midst of something.
func Unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Command is what a caller asks. Its head is held, the rest is still to be read.
type Command struct {
	// Args are the arguments that were read as a whole, the first ones.
	Args []string
	// Left is the number of arguments that were not, and next the length of the first
	// of them, of which nothing but its header was read.
	Left, Next int
}

// Command reads the head of a command, which is all of a short one. What is none is
// known by its first byte: who speaks TLS here has no line to end.
func (w Wire) Command() (Command, error) {
	first, err := w.Peek(1)
	if err != nil {
		return Command{}, err
	}
	if first[0] != '*' {
		return Command{}, fmt.Errorf("%w: a command is an array", ErrProtocol)
	}
	line, err := w.Line()
	if err != nil {
		return Command{}, err
	}
	n, err := Size(line, maxArgs)
	if err != nil {
		return Command{}, err
	}
	if n < 1 {
		return Command{}, fmt.Errorf("%w: a command without a name", ErrProtocol)
	}
	c := Command{Left: n}
	for room := MaxHead; c.Left > 0; c.Left-- {
		if c.Next, err = w.Argument(); err != nil {
			return Command{}, err
		}
		if c.Next > room || len(c.Args) == MaxHeadArgs {
			break
		}
		arg, err := w.Bytes(c.Next)
		if err != nil {
			return Command{}, err
		}
		c.Args, room = append(c.Args, string(arg)), room-c.Next
	}
	return c, nil
}

// Argument reads the header of an argument.
func (w Wire) Argument() (int, error) {
	line, err := w.Line()
	if err != nil {
		return 0, Unexpected(err)
	}
	if line[0] != '$' {
		return 0, fmt.Errorf("%w: an argument is a string", ErrProtocol)
	}
	n, err := Size(line, MaxBulk)
	if err == nil && n < 0 {
		err = fmt.Errorf("%w: an argument is not null", ErrProtocol)
	}
	return n, err
}

// Element reads the header of a string in a list, or a null of either protocol, and
// returns its length, or -1.
func (w Wire) Element() (int, error) {
	line, err := w.Line()
	switch {
	case err != nil:
		return 0, err
	case line[0] == '_':
		return -1, nil
	case line[0] != '$':
		return 0, fmt.Errorf("%w: an element is a string", ErrProtocol)
	}
	return Size(line, MaxBulk)
}

// Bytes reads a string of n bytes, and its end.
func (w Wire) Bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(w, b); err != nil {
		return nil, Unexpected(err)
	}
	return b, w.End()
}

// Bulk reads a string of n bytes, and its end. It returns it as it is written, with its
// header, and the string itself, which is a part of that.
func (w Wire) Bulk(n int) (whole, value []byte, err error) {
	const header, end = 1 + 20 + 2, 2 // with the most digits of a number
	whole = AppendHeader(make([]byte, 0, header+n+end), '$', n)
	begin := len(whole)
	whole = whole[:begin+n]
	if _, err := io.ReadFull(w, whole[begin:]); err != nil {
		return nil, nil, Unexpected(err)
	}
	if err := w.End(); err != nil {
		return nil, nil, err
	}
	return append(whole, "\r\n"...), whole[begin : begin+n : begin+n], nil
}

// Small reads a string that is short: a bulk string, a simple one, or null, for which
// null is true.
func (w Wire) Small() (text string, null bool, err error) {
	line, err := w.Line()
	if err != nil {
		return "", false, Unexpected(err)
	}
	switch line[0] {
	case '+':
		return string(line[1:]), false, nil
	case '_':
		return "", true, nil
	case '$':
		n, err := Size(line, maxSmall)
		if err != nil || n < 0 {
			return "", n < 0, err
		}
		b, err := w.Bytes(n)
		return string(b), false, err
	}
	return "", false, fmt.Errorf("%w: a string was expected", ErrProtocol)
}

// Number reads an integer.
func (w Wire) Number() (int64, error) {
	line, err := w.Line()
	if err != nil {
		return 0, Unexpected(err)
	}
	if line[0] != ':' {
		return 0, fmt.Errorf("%w: an integer was expected", ErrProtocol)
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: an integer", ErrProtocol)
	}
	return n, nil
}

// Collection reads the header of one, whose first byte is among kinds, and returns
// the number of its elements.
func (w Wire) Collection(kinds ...byte) (int, error) {
	line, err := w.Line()
	if err != nil {
		return 0, err
	}
	for _, kind := range kinds {
		if line[0] == kind {
			n, err := Size(line, maxElements)
			if err == nil && n < 0 {
				err = fmt.Errorf("%w: a collection that is null", ErrProtocol)
			}
			return n, err
		}
	}
	return 0, fmt.Errorf("%w: a collection was expected", ErrProtocol)
}

// CopyValues copies the next values, each to its end, whatever they hold, and keeps
// nothing of them. With resp3 the nulls of RESP2 become that of RESP3.
func (w Wire) CopyValues(to *bufio.Writer, values int, resp3 bool) error {
	begun := false
	for left := values; left > 0; left-- {
		line, err := w.Line()
		if err != nil {
			if begun {
				err = Unexpected(err)
			}
			return err
		}
		begun = true
		n, isString := 0, false
		switch line[0] {
		case '+', '-', ':', '_', '#', ',', '(':
		case '$', '!', '=':
			n, err = Size(line, MaxBulk)
			isString = true
		case '*', '~', '>':
			n, err = Size(line, maxElements)
			left += max(n, 0)
		case '%':
			n, err = Size(line, maxElements)
			left += 2 * max(n, 0)
		case '|': // attributes are before a value, and not one
			n, err = Size(line, maxElements)
			left += 2*max(n, 0) + 1
		default:
			err = fmt.Errorf("%w: no value begins with byte %d", ErrProtocol, line[0])
		}
		if err != nil {
			return err
		}
		if n < 0 && resp3 {
			line = []byte("_")
		}
		if err := WriteLine(to, line); err != nil {
			return err
		}
		if isString && n >= 0 {
			if err := w.CopyString(to, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// CopyString copies the bytes of a string, and its end.
func (w Wire) CopyString(to *bufio.Writer, n int) error {
	for n > 0 {
		// Through the buffers that are there: io.Copy would take one of its own.
		if _, err := w.Peek(1); err != nil {
			return Unexpected(err)
		}
		piece, _ := w.Peek(min(n, w.Buffered())) // it is there
		if _, err := to.Write(piece); err != nil {
			return err
		}
		n -= len(piece)
		if _, err := w.Discard(len(piece)); err != nil {
			return err
		}
	}
	if err := w.End(); err != nil {
		return err
	}
	return WriteLine(to, nil)
}

// WriteLine writes a line and its end.
func WriteLine(to *bufio.Writer, line []byte) error {
	_, err := to.Write(line)
	if err == nil {
		_, err = to.WriteString("\r\n")
	}
	return err
}

// RefusalError is an answer that is an error: its first word, and the rest, which may name
// users and is not for logs.
type RefusalError struct{ Code, Rest string }

func (r RefusalError) Error() string { return "it answers " + r.Code }

// Ask sends a command, and waits until its answer begins. One that is a refusal is
// read, and returned.
func (w Wire) Ask(to io.Writer, args ...string) error {
	if _, err := to.Write(EncodeCommand(args...)); err != nil {
		return err
	}
	first, err := w.Peek(1)
	if err != nil {
		return Unexpected(err)
	}
	if first[0] != '-' {
		return nil
	}
	line, err := w.Line()
	if err != nil {
		return err
	}
	code, rest, _ := strings.Cut(string(line[1:]), " ")
	return RefusalError{code, rest}
}

// EncodeCommand returns a command.
func EncodeCommand(args ...string) []byte {
	b := AppendHeader(nil, '*', len(args))
	for _, arg := range args {
		b = AppendBulk(b, arg)
	}
	return b
}

// AppendHeader appends the header of a collection or a string, by its first byte.
func AppendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

// AppendBulk appends a string.
func AppendBulk(b []byte, s string) []byte {
	b = AppendHeader(b, '$', len(s))
	b = append(b, s...)
	return append(b, "\r\n"...)
}

// AppendNumber appends a number.
func AppendNumber(b []byte, n int64) []byte {
	b = strconv.AppendInt(append(b, ':'), n, 10)
	return append(b, "\r\n"...)
}

// AppendNull appends null, as the protocol has it.
func AppendNull(b []byte, resp3 bool) []byte {
	if resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// AppendPush appends the header of a push, which answers no command.
func AppendPush(b []byte, resp3 bool, n int) []byte {
	if resp3 {
		return AppendHeader(b, '>', n)
	}
	return AppendHeader(b, '*', n)
}

// AppendMessage appends a message to a subscriber.
func AppendMessage(b []byte, resp3 bool, channel, payload string) []byte {
	b = AppendPush(b, resp3, 3)
	b = AppendBulk(b, "message")
	b = AppendBulk(b, channel)
	return AppendBulk(b, payload)
}

// EncodeError returns an error. Its text is ours, on one line.
func EncodeError(text string) []byte { return []byte("-" + text + "\r\n") }
