package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/observe"
	"github.com/tallystick/tallystick/internal/wire"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// A task is a call as the Tasks extension shows it (CreateTaskResult, and
// DetailedTask in tasks/get).
type task struct {
	ResultType    string                  `json:"resultType,omitempty"`
	TaskID        string                  `json:"taskId"`
	Status        string                  `json:"status"`
	StatusMessage string                  `json:"statusMessage,omitempty"`
	CreatedAt     string                  `json:"createdAt"`
	LastUpdatedAt string                  `json:"lastUpdatedAt"`
	TTLMs         int64                   `json:"ttlMs"`
	PollMs        int64                   `json:"pollIntervalMs,omitempty"`
	InputRequests map[string]inputRequest `json:"inputRequests,omitempty"`
	Result        json.RawMessage         `json:"result,omitempty"`
	Error         *taskError              `json:"error,omitempty"`
}

type taskError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// taskOf is a call as a task, without what only tasks/get shows. Between two
// commits the run of this process knows how far it is.
func (s *Server) taskOf(c *record.Call, now time.Time) task {
	updated := c.UpdatedAt
	if updated.Before(c.CreatedAt) { // the store's clock was set back
		updated = c.CreatedAt
	}
	t := task{
		TaskID: c.ID, Status: "working",
		CreatedAt: stamp(c.CreatedAt), LastUpdatedAt: stamp(updated), TTLMs: max(c.TTL().Milliseconds(), 1),
	}
	if c.State != record.Ended { // a run that has ended it lives on for a moment
		if run := s.engine.Live(c.ID); run != nil {
			t.StatusMessage = run.Progress().Message
		} else if c.Progress != nil {
			t.StatusMessage = c.Progress.Message
		}
	}
	switch status := c.Status(); status {
	case record.Completed, record.Failed, record.Cancelled:
		t.Status = string(status)
		if status == record.Failed && c.Error != nil {
			t.StatusMessage = c.Error.Message
		}
	case record.Expired:
		t.Status, t.StatusMessage = "failed", "expired"
	case record.OutcomeHeld:
		_, t.StatusMessage, _ = s.words(c)
	case record.InputRequired:
		t.StatusMessage = s.awaited(c)
	}
	if c.State != record.Ended {
		t.PollMs = pollAfter(now.Sub(c.CreatedAt)).Milliseconds()
	}
	return t
}

// pollAfter grows with the age of the wait. Who polls faster is served.
func pollAfter(age time.Duration) time.Duration {
	switch {
	case age < 10*time.Second:
		return 500 * time.Millisecond
	case age < time.Minute:
		return 2 * time.Second
	case age < 10*time.Minute:
		return 5 * time.Second
	}
	return 15 * time.Second
}

// stamp is ISO 8601 in UTC, to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func (s *Server) taskCreated(c *record.Call) json.RawMessage {
	t := s.taskOf(c, c.CreatedAt)
	t.ResultType = "task"
	raw, _ := json.Marshal(t)
	return raw
}

// detailed is a call as its owner's request may see it now.
func (s *Server) detailed(c *record.Call, now time.Time, by record.Actor, kinds []record.Kind) task {
	t := s.taskOf(c, now)
	switch c.Status() {
	case record.Completed:
		t.Result = c.Result
	case record.Failed, record.Expired:
		t.Error = taskErrorOf(c.Error)
	case record.InputRequired:
		for _, q := range c.Open() {
			if q.MayAnswer(by, c.Owner) && slices.Contains(kinds, q.Kind) {
				if t.InputRequests == nil {
					t.Status, t.InputRequests = "input_required", map[string]inputRequest{}
				}
				t.InputRequests[q.WireKey] = inputRequest{Method: methodOf(q.Kind), Params: q.Request}
			}
		}
	}
	return t
}

// taskErrorOf puts the outcome word beside a failed call's error.
func taskErrorOf(e *record.Error) *taskError {
	if e == nil {
		return &taskError{Code: wire.CodeInternal, Message: "failed"}
	}
	return &taskError{Code: e.Code, Message: e.Message, Data: dataOf(e)}
}

// ack is the empty result of tasks/update and tasks/cancel.
func ack() json.RawMessage { return complete([]byte("{}")) }

// owned loads a task for a request. To everybody but its owner, and to an owner
// who may not do this any more, it does not exist.
func (s *Server) owned(ctx context.Context, r *wire.Request, id string, verb Verb) (*record.Call, record.Actor, error) {
	c, err := s.find(ctx, r, id)
	if err != nil {
		return nil, record.Actor{}, err
	}
	by, err := s.mayUse(ctx, r, c, verb)
	if err == nil && r.Method != wire.MethodListen { // which is of many
		observe.At(ctx).Of(c)
	}
	return c, by, err
}

// find loads what may be a task of the sender's.
func (s *Server) find(ctx context.Context, r *wire.Request, id string) (*record.Call, error) {
	c, err := s.engine.Load(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		if _, err := s.identify(ctx, r); err != nil { // as for a task that is there
			return nil, err
		}
		return nil, errNoTask
	}
	return c, err
}

// mayUse reports whether a request's sender may do this to a task, as far as it
// is one: errNoTask if not.
func (s *Server) mayUse(ctx context.Context, r *wire.Request, c *record.Call, verb Verb) (record.Actor, error) {
	id, by, err := s.owns(ctx, r, c)
	if err == nil && s.authorize(ctx, accessTo(c, verb, id)) != nil {
		err = errNoTask
	}
	return by, err
}

// owns says who the sender is, if it is the owner of a task: errNoTask if not.
func (s *Server) owns(ctx context.Context, r *wire.Request, c *record.Call) (Identity, record.Actor, error) {
	id, err := s.identify(ctx, r)
	if err != nil {
		return id, record.Actor{}, err
	}
	by := id.actor(record.ChannelTask)
	if c.Owner != by.Principal {
		s.engine.Refuse(ctx, c.ID, by, "task_of_another_principal", r.Method)
		return id, by, errNoTask
	}
	if !c.Task {
		return id, by, errNoTask
	}
	return id, by, nil
}

func (s *Server) taskGet(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	c, by, err := s.owned(ctx, r, r.Name, Watch)
	if err != nil {
		return nil, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	t := s.detailed(c, now, by, kindsOf(r.Capabilities))
	t.ResultType = "complete"
	return json.Marshal(t)
}

// taskUpdate records answers. What does not count is acked all the same, as
// the specification wants it, and on record; an answer that does not fit its
// question's schema, or that its sender may not give, makes the whole update
// fail, and nothing is stored.
func (s *Server) taskUpdate(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	c, err := s.find(ctx, r, r.Name)
	if err != nil {
		return nil, err
	}
	id, by, err := s.owns(ctx, r, c)
	if err != nil {
		return nil, err
	}
	var answers []given
	ignored := 0
	wrong := map[string]misfit{}
	for _, key := range slices.Sorted(maps.Keys(r.InputResponses)) {
		q := c.Question(key)
		if q == nil || q.State != record.Open || !q.Who.Allows(by, c.Owner) {
			ignored++
			continue
		}
		g, bad := readAnswer(q, r.InputResponses[key])
		if bad != nil {
			wrong[key] = bad
		} else if !g.consent {
			answers = append(answers, g)
		}
	}
	a := accessTo(c, Reply, id)
	if len(answers) == 0 {
		err = s.authorize(ctx, a)
	} else {
		err = s.mayReply(ctx, c, a, answers)
	}
	if err != nil {
		return nil, errNoTask
	}
	observe.At(ctx).Of(c)
	if r.InputResponses == nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "inputResponses is missing")
	}
	if len(wrong) > 0 {
		s.engine.Refuse(ctx, c.ID, by, "answer_does_not_fit", "")
		return nil, errMisfit(wrong)
	}
	if ignored > 0 {
		s.log.Info("answers that count for nothing were ignored", "call", c.ID, "answers", ignored)
		reason := record.ReasonNotOpen
		if c.State == record.Ended {
			reason = record.ReasonEnded
		}
		s.engine.Refuse(ctx, c.ID, by, reason, "")
	}
	if len(answers) == 0 {
		return ack(), nil
	}
	return ack(), s.respond(ctx, c.ID, by, answers)
}

// respond records answers, those of them that still count when they are. That
// one is late takes nothing from the others.
func (s *Server) respond(ctx context.Context, id string, by record.Actor, answers []given) error {
	late := false
	_, err := s.engine.Change(ctx, id, by, record.NoEpoch, func(c *record.Call, now time.Time) []record.Event {
		var events []record.Event
		for _, g := range answers {
			if q := c.Question(g.WireKey); q.State == record.Open && now.Before(q.Expires) && q.MayAnswer(by, c.Owner) {
				events = append(events, g.Responded)
			}
		}
		late = len(events) < len(answers)
		return events
	})
	if late {
		s.engine.Refuse(ctx, id, by, record.ReasonNotOpen, "")
	}
	var refused *record.Refusal
	if errors.As(err, &refused) || errors.Is(err, store.ErrNotFound) {
		return nil // late; that is on record
	}
	return err
}

func (s *Server) taskCancel(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	c, by, err := s.owned(ctx, r, r.Name, Stop)
	if err != nil {
		return nil, err
	}
	_, err = s.engine.Change(ctx, c.ID, by, record.NoEpoch, func(*record.Call, time.Time) []record.Event {
		return []record.Event{record.CancelAsked{}}
	})
	var refused *record.Refusal
	if err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	return ack(), nil
}
