package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxLine is the longest line: header, error or simple string.
	maxLine = 8 << 10
	// maxHead bounds what is read of a command before it is decided about, in bytes,
	// and maxHeadArgs in arguments. What is longer is passed on piece by piece.
	maxHead     = 32 << 10
	maxHeadArgs = 1024
	// maxArgs is the largest number of arguments of a command, as Redis has it.
	maxArgs = 1 << 20
	// maxElements is the largest number of elements of one collection in a reply.
	maxElements = 1 << 31
	// maxBulk is the longest value that passes.
	maxBulk = 64 << 20
	// maxSmall is the longest string that is read as a whole where a value is not
	// expected: the name of a channel, the payload of a message.
	maxSmall = 1 << 20
)

// errProtocol is wrapped by errors about bytes that are not RESP as it is written here.
var errProtocol = errors.New("not the protocol of redis")

// errTooLong is wrapped by errors about what is valid, and longer than what passes.
var errTooLong = errors.New("longer than what passes")

// wire reads RESP2 and RESP3. Nothing it holds grows with what is read: a value of any
// length passes through one buffer, and every length is checked before it is believed.
//
// That is why it is ours. The readers that Go libraries export (redcon, tidwall/resp,
// the resp3 of radix) hold a command or a string as a whole, of whatever length its
// header says, and the first two do not know RESP3; those of go-redis and rueidis are
// internal to them. A tree has tens of megabytes, and a proxy has no use for it but to
// pass it on. Where values are wanted, as for the last ones, the client is go-redis.
type wire struct{ *bufio.Reader }

func newWire(r io.Reader) wire { return wire{bufio.NewReaderSize(r, maxLine)} }

// line returns the next line without its end, until the next read.
func (w wire) line() ([]byte, error) {
	line, err := w.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line of more than %d bytes", errProtocol, maxLine)
	case err != nil:
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, fmt.Errorf("%w: a line without its end", errProtocol)
	}
	return line[:len(line)-2], nil
}

// size reads the number behind the first byte of a line: 0 to most, or -1, which is
// null.
func size(line []byte, most int) (int, error) {
	text := line[1:]
	if string(text) == "-1" {
		return -1, nil
	}
	if len(text) == 0 || len(text) > 10 || len(text) > 1 && text[0] == '0' {
		return 0, fmt.Errorf("%w: a length", errProtocol)
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: a length", errProtocol)
		}
		n = n*10 + int(c-'0')
	}
	if n > most {
		return 0, fmt.Errorf("%w: %d, at most %d", errTooLong, n, most)
	}
	return n, nil
}

// end reads what follows the bytes of a string.
func (w wire) end() error {
	end, err := w.Peek(2)
	if err != nil {
		return unexpected(err)
	}
	if end[0] != '\r' || end[1] != '\n' {
		return fmt.Errorf("%w: a string without its end", errProtocol)
	}
	_, err = w.Discard(2)
	return err
}

// unexpected is an error of a read in the midst of something.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// command is what a caller asks. Its head is held, the rest is still to be read.
type command struct {
	// args are the arguments that were read as a whole, the first ones.
	args []string
	// left is the number of arguments that were not, and next the length of the first
	// of them, of which nothing but its header was read.
	left, next int
}

// command reads the head of a command, which is all of a short one. What is none is
// known by its first byte: who speaks TLS here has no line to end.
func (w wire) command() (command, error) {
	first, err := w.Peek(1)
	if err != nil {
		return command{}, err
	}
	if first[0] != '*' {
		return command{}, fmt.Errorf("%w: a command is an array", errProtocol)
	}
	line, err := w.line()
	if err != nil {
		return command{}, err
	}
	n, err := size(line, maxArgs)
	if err != nil {
		return command{}, err
	}
	if n < 1 {
		return command{}, fmt.Errorf("%w: a command without a name", errProtocol)
	}
	c := command{left: n}
	for room := maxHead; c.left > 0; c.left-- {
		if c.next, err = w.argument(); err != nil {
			return command{}, err
		}
		if c.next > room || len(c.args) == maxHeadArgs {
			break
		}
		arg, err := w.bytes(c.next)
		if err != nil {
			return command{}, err
		}
		c.args, room = append(c.args, string(arg)), room-c.next
	}
	return c, nil
}

// argument reads the header of an argument.
func (w wire) argument() (int, error) {
	line, err := w.line()
	if err != nil {
		return 0, unexpected(err)
	}
	if line[0] != '$' {
		return 0, fmt.Errorf("%w: an argument is a string", errProtocol)
	}
	n, err := size(line, maxBulk)
	if err == nil && n < 0 {
		err = fmt.Errorf("%w: an argument is not null", errProtocol)
	}
	return n, err
}

// element reads the header of a string in a list, or a null of either protocol, and
// returns its length, or -1.
func (w wire) element() (int, error) {
	line, err := w.line()
	switch {
	case err != nil:
		return 0, err
	case line[0] == '_':
		return -1, nil
	case line[0] != '$':
		return 0, fmt.Errorf("%w: an element is a string", errProtocol)
	}
	return size(line, maxBulk)
}

// bytes reads a string of n bytes, and its end.
func (w wire) bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(w, b); err != nil {
		return nil, unexpected(err)
	}
	return b, w.end()
}

// bulk reads a string of n bytes, and its end. It returns it as it is written, with its
// header, and the string itself, which is a part of that.
func (w wire) bulk(n int) (whole, value []byte, err error) {
	const header, end = 1 + 20 + 2, 2 // with the most digits of a number
	whole = appendHeader(make([]byte, 0, header+n+end), '$', n)
	begin := len(whole)
	whole = whole[:begin+n]
	if _, err := io.ReadFull(w, whole[begin:]); err != nil {
		return nil, nil, unexpected(err)
	}
	if err := w.end(); err != nil {
		return nil, nil, err
	}
	return append(whole, "\r\n"...), whole[begin : begin+n : begin+n], nil
}

// small reads a string that is short: a bulk string, a simple one, or null, for which
// null is true.
func (w wire) small() (text string, null bool, err error) {
	line, err := w.line()
	if err != nil {
		return "", false, unexpected(err)
	}
	switch line[0] {
	case '+':
		return string(line[1:]), false, nil
	case '_':
		return "", true, nil
	case '$':
		n, err := size(line, maxSmall)
		if err != nil || n < 0 {
			return "", n < 0, err
		}
		b, err := w.bytes(n)
		return string(b), false, err
	}
	return "", false, fmt.Errorf("%w: a string was expected", errProtocol)
}

// number reads an integer.
func (w wire) number() (int64, error) {
	line, err := w.line()
	if err != nil {
		return 0, unexpected(err)
	}
	if line[0] != ':' {
		return 0, fmt.Errorf("%w: an integer was expected", errProtocol)
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: an integer", errProtocol)
	}
	return n, nil
}

// collection reads the header of one, whose first byte is among kinds, and returns
// the number of its elements.
func (w wire) collection(kinds ...byte) (int, error) {
	line, err := w.line()
	if err != nil {
		return 0, err
	}
	for _, kind := range kinds {
		if line[0] == kind {
			n, err := size(line, maxElements)
			if err == nil && n < 0 {
				err = fmt.Errorf("%w: a collection that is null", errProtocol)
			}
			return n, err
		}
	}
	return 0, fmt.Errorf("%w: a collection was expected", errProtocol)
}

// copyValues copies the next values, each to its end, whatever they hold, and keeps
// nothing of them. With resp3 the nulls of RESP2 become that of RESP3.
func (w wire) copyValues(to *bufio.Writer, values int, resp3 bool) error {
	begun := false
	for left := values; left > 0; left-- {
		line, err := w.line()
		if err != nil {
			if begun {
				err = unexpected(err)
			}
			return err
		}
		begun = true
		n, isString := 0, false
		switch line[0] {
		case '+', '-', ':', '_', '#', ',', '(':
		case '$', '!', '=':
			n, err = size(line, maxBulk)
			isString = true
		case '*', '~', '>':
			n, err = size(line, maxElements)
			left += max(n, 0)
		case '%':
			n, err = size(line, maxElements)
			left += 2 * max(n, 0)
		case '|': // attributes are before a value, and not one
			n, err = size(line, maxElements)
			left += 2*max(n, 0) + 1
		default:
			err = fmt.Errorf("%w: no value begins with byte %d", errProtocol, line[0])
		}
		if err != nil {
			return err
		}
		if n < 0 && resp3 {
			line = []byte("_")
		}
		if err := writeLine(to, line); err != nil {
			return err
		}
		if isString && n >= 0 {
			if err := w.copyString(to, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyString copies the bytes of a string, and its end.
func (w wire) copyString(to *bufio.Writer, n int) error {
	for n > 0 {
		// Through the buffers that are there: io.Copy would take one of its own.
		if _, err := w.Peek(1); err != nil {
			return unexpected(err)
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
	if err := w.end(); err != nil {
		return err
	}
	return writeLine(to, nil)
}

// writeLine writes a line and its end.
func writeLine(to *bufio.Writer, line []byte) error {
	_, err := to.Write(line)
	if err == nil {
		_, err = to.WriteString("\r\n")
	}
	return err
}

// refusal is an answer that is an error: its first word, and the rest, which may name
// users and is not for logs.
type refusal struct{ code, rest string }

func (r refusal) Error() string { return "it answers " + r.code }

// ask sends a command, and waits until its answer begins. One that is a refusal is
// read, and returned.
func (w wire) ask(to io.Writer, args ...string) error {
	if _, err := to.Write(encodeCommand(args...)); err != nil {
		return err
	}
	first, err := w.Peek(1)
	if err != nil {
		return unexpected(err)
	}
	if first[0] != '-' {
		return nil
	}
	line, err := w.line()
	if err != nil {
		return err
	}
	code, rest, _ := strings.Cut(string(line[1:]), " ")
	return refusal{code, rest}
}

// encodeCommand returns a command.
func encodeCommand(args ...string) []byte {
	b := appendHeader(nil, '*', len(args))
	for _, arg := range args {
		b = appendBulk(b, arg)
	}
	return b
}

func appendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

func appendBulk(b []byte, s string) []byte {
	b = appendHeader(b, '$', len(s))
	b = append(b, s...)
	return append(b, "\r\n"...)
}

func appendNumber(b []byte, n int64) []byte {
	b = strconv.AppendInt(append(b, ':'), n, 10)
	return append(b, "\r\n"...)
}

// appendNull appends null, as the protocol has it.
func appendNull(b []byte, resp3 bool) []byte {
	if resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// appendPush appends the header of what nobody asked for at that moment.
func appendPush(b []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHeader(b, '>', n)
	}
	return appendHeader(b, '*', n)
}

// appendMessage appends what a subscriber is told.
func appendMessage(b []byte, resp3 bool, channel, payload string) []byte {
	b = appendPush(b, resp3, 3)
	b = appendBulk(b, "message")
	b = appendBulk(b, channel)
	return appendBulk(b, payload)
}

// encodeError returns an error. Its text is ours, on one line.
func encodeError(text string) []byte { return []byte("-" + text + "\r\n") }
