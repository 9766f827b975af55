package row

import (
	"bytes"
	"slices"

	"github.com/tallystick/tallystick/record"
)

// Copy is a call as it is read back after it was written: it shares no memory
// with c, its times are in UTC, and empty slices are nil.
func Copy(c *record.Call) *record.Call {
	d := *c
	d.Lease.Until = d.Lease.Until.UTC()
	d.Roles, d.Scopes, d.Kinds = list(c.Roles), list(c.Scopes), list(c.Kinds)
	d.Args, d.Result = data(c.Args), data(c.Result)
	d.CreatedAt, d.UpdatedAt, d.Deadline = c.CreatedAt.UTC(), c.UpdatedAt.UTC(), c.Deadline.UTC()
	d.EndedAt, d.CancelledAt = c.EndedAt.UTC(), c.CancelledAt.UTC()
	d.Rounds = list(c.Rounds)
	for i := range d.Rounds {
		r := &d.Rounds[i]
		r.TakenAt, r.Asked = r.TakenAt.UTC(), list(r.Asked)
	}
	d.Questions = list(c.Questions)
	for i := range d.Questions {
		copyQuestion(&d.Questions[i])
	}
	d.Effects = list(c.Effects)
	for i := range d.Effects {
		copyEffect(&d.Effects[i])
	}
	if c.Progress != nil {
		p := *c.Progress
		d.Progress = &p
	}
	if c.Error != nil {
		e := *c.Error
		e.Data = data(e.Data)
		d.Error = &e
	}
	return &d
}

func copyQuestion(q *record.Question) {
	q.Request, q.Facts = data(q.Request), data(q.Facts)
	q.Who.Roles, q.Who.Subjects = list(q.Who.Roles), list(q.Who.Subjects)
	q.AskedAt, q.Expires, q.Within = q.AskedAt.UTC(), q.Expires.UTC(), 0
	q.Answers = list(q.Answers)
	for i := range q.Answers {
		a := &q.Answers[i]
		a.By.Roles, a.At, a.Value = list(a.By.Roles), a.At.UTC(), data(a.Value)
	}
}

func copyEffect(f *record.Effect) {
	f.StartedAt, f.EndedAt = f.StartedAt.UTC(), f.EndedAt.UTC()
	f.Result, f.Relied = data(f.Result), list(f.Relied)
	f.Evidence = list(f.Evidence)
	for i := range f.Evidence {
		e := &f.Evidence[i]
		e.By.Roles, e.At, e.Result = list(e.By.Roles), e.At.UTC(), data(e.Result)
	}
}

func list[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return slices.Clone(s)
}

func data(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}
