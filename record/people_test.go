package record_test

import (
	"testing"

	. "github.com/tallystick/tallystick/record"
)

// One name under two issuers may be one person, and may be two. Where it
// matters it is taken for whichever gives less.
func TestOneNameUnderTwoIssuersGivesLess(t *testing.T) {
	annFinance := annOther
	annFinance.Roles = []string{"finance"}
	for what, c := range map[string]struct {
		who  Who
		by   Actor
		want bool
	}{
		"the requester herself":                  {Who{}, ann, true},
		"her name, of another issuer":            {Who{}, annOther, false},
		"a named person":                         {Who{Subjects: []string{"bob"}}, bob, true},
		"a named person, of another issuer":      {Who{Subjects: []string{"ann"}}, annOther, false},
		"not the requester":                      {Who{NotRequester: true}, bob, true},
		"not even of another issuer":             {Who{NotRequester: true}, annOther, false},
		"a role does not mend that":              {Who{Roles: []string{"finance"}, NotRequester: true}, annFinance, false},
		"a role of another issuer is a role":     {Who{Roles: []string{"finance"}}, annFinance, true},
		"another tenant is nobody, role or none": {Who{Roles: []string{"finance"}}, eve, false},
	} {
		if got := c.who.Allows(c.by, ann.Principal); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// case S42
func TestOneNameUnderTwoIssuersCountsOnce(t *testing.T) {
	s := inline(t)
	s.ask(asking(Who{Roles: []string{"finance"}, Count: 2}))
	again := bob
	again.Issuer = "other"
	s.yes(bob)
	s.refuse(ReasonSamePerson, again, NoEpoch, Responded{WireKey: "k", Action: Accept})
	s.yes(cid)
	s.same("question", s.state("k"), Answered)
}
