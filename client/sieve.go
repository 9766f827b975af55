package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A sieve passes on the events of a response that are JSON-RPC messages. One
// that is none, too large or nested too deep ends the stream: the SDK would end
// its session for it, and with that every other call.
type sieve struct {
	io.Closer
	lines *bufio.Reader
	limit int // bytes of an event
	broke func(error)

	ready []byte // of an event, still to be read
	err   error  // what comes after it
}

func newSieve(body io.ReadCloser, limit int, broke func(error)) *sieve {
	return &sieve{Closer: body, lines: bufio.NewReader(body), limit: limit, broke: broke}
}

// Read implements [io.Reader].
func (s *sieve) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		var bad error
		if s.ready, bad, s.err = s.event(); bad != nil {
			s.broke(bad)
			s.ready, s.err = nil, io.EOF
		}
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// event reads one event: bad is what is wrong with it, err of the stream.
func (s *sieve) event() (event []byte, bad, err error) {
	var data []byte
	message := true
	for {
		line, err := s.line(s.limit - len(event))
		if errors.Is(err, errTooLarge) {
			return nil, fmt.Errorf("an event is %w, over the limit of %d bytes: raise Limits.Message", err, s.limit), nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err // half an event is none
		}
		line = bytes.TrimRight(line, "\r\n")
		if field, value, ok := bytes.Cut(line, []byte(":")); ok { // without a colon it says nothing
			event = append(append(event, line...), '\n')
			switch string(field) {
			case "data":
				data = append(append(data, bytes.TrimSpace(value)...), '\n')
			case "event":
				name := string(bytes.TrimSpace(value))
				message = name == "" || name == "message"
			}
		}
		if err == nil && len(line) > 0 {
			continue
		}
		if message && len(bytes.TrimSpace(data)) > 0 && !isRPC(data) {
			return nil, errors.New("an event of the response is no JSON-RPC message"), nil
		}
		return append(event, '\n'), nil, err
	}
}

// line reads a line with its end, of at most so many bytes.
func (s *sieve) line(most int) ([]byte, error) {
	var line []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errTooLarge
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
