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
	d.Roles, d.Scopes, d.Kinds = list(c.Roles), list(c.Scopes), list(c.Kinds)
	d.Args, d.Result = data(c.Args), data(c.Result)
	d.Rounds = list(c.Rounds)
	for i := range d.Rounds {
		d.Rounds[i].Asked = list(d.Rounds[i].Asked)
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
	utc(&d)
	return &d
}

func copyQuestion(q *record.Question) {
	q.Request, q.Facts = data(q.Request), data(q.Facts)
	q.Who.Roles, q.Who.Subjects = list(q.Who.Roles), list(q.Who.Subjects)
	q.Within = 0 // never stored
	q.Answers = list(q.Answers)
	for i := range q.Answers {
		a := &q.Answers[i]
		a.By.Roles, a.Value = list(a.By.Roles), data(a.Value)
	}
}

func copyEffect(f *record.Effect) {
	f.Result, f.Relied = data(f.Result), list(f.Relied)
	f.Evidence = list(f.Evidence)
	for i := range f.Evidence {
		e := &f.Evidence[i]
		e.By.Roles, e.Result = list(e.By.Roles), data(e.Result)
	}
}

// utc puts all times of c into UTC, in place.
func utc(c *record.Call) {
	c.Lease.Until = c.Lease.Until.UTC()
	c.CreatedAt, c.UpdatedAt, c.Deadline = c.CreatedAt.UTC(), c.UpdatedAt.UTC(), c.Deadline.UTC()
	c.EndedAt, c.CancelledAt = c.EndedAt.UTC(), c.CancelledAt.UTC()
	for i := range c.Rounds {
		c.Rounds[i].TakenAt = c.Rounds[i].TakenAt.UTC()
	}
	for i := range c.Questions {
		q := &c.Questions[i]
		q.AskedAt, q.Expires = q.AskedAt.UTC(), q.Expires.UTC()
		for j := range q.Answers {
			q.Answers[j].At = q.Answers[j].At.UTC()
		}
	}
	for i := range c.Effects {
		f := &c.Effects[i]
		f.StartedAt, f.EndedAt = f.StartedAt.UTC(), f.EndedAt.UTC()
		for j := range f.Evidence {
			f.Evidence[j].At = f.Evidence[j].At.UTC()
		}
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
