package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// codeURLRequired is the error of revision 2025-11-25 by which a server says
// that pages have to be visited before it does a request. Nothing was done.
const codeURLRequired = -32042

// required are the pages that a server of the 2025 era wants to have visited
// first; nil if it does not say so, or not as it must.
func (d *drive) required(l *link, err error) (pages []question) {
	var said *serverError
	if l == nil || l.modern || !errors.As(err, &said) || said.Code != codeURLRequired || !d.can.has(URL) {
		return nil
	}
	var data struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if unmarshal(said.Data, &data) != nil || len(data.Elicitations) > d.c.opts.Limits.Questions {
		return nil
	}
	for i, params := range data.Elicitations {
		raw, err := marshal(map[string]any{"method": "elicitation/create", "params": params})
		if err != nil {
			return nil
		}
		q, err := readRequest(fmt.Sprintf("page-%d", i+1), raw)
		if err != nil || q.Kind != URL {
			return nil
		}
		pages = append(pages, q)
	}
	return pages
}

// visit asks for the pages. Once all are, the request is sent anew: it is the
// first one still.
func (d *drive) visit(pages []question, err error) error {
	var said *serverError
	errors.As(err, &said)
	o := failedBy(said)
	return d.come(context.WithoutCancel(d.ctx), func(e *entry) {
		e.Stage, e.via, e.Questions, e.Otherwise = stageAsking, nil, e.numbered(pages), &o
	})
}

// unvisited is how a call ends of whose pages one was turned down; nil if none
// was.
func (e *entry) unvisited() *outcome {
	if e.Otherwise == nil {
		return nil
	}
	for _, q := range e.Questions {
		var a struct {
			Action string `json:"action"`
		}
		if q.Response == nil || unmarshal(q.Response, &a) == nil && a.Action == "accept" {
			continue
		}
		o := *e.Otherwise
		if o.Outcome = "declined"; a.Action == "cancel" {
			o.Outcome = "dismissed"
		}
		return &o
	}
	return nil
}
