// Package link judges an address that a server wants somebody to open.
package link

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/safetext"
)

// A Link is what there is to know of an address before it is opened. All of
// its texts can be printed.
type Link struct {
	Shown    string   // the whole address, as it came
	Refused  string   // why it is not to be opened; empty if it may be
	Host     string   // with the port, in ASCII: where a browser goes
	Unicode  string   // the host's name as a browser may write it, if that is not ASCII
	Warnings []string // what is unusual about it
	Opens    string   // the address to hand to a browser, in ASCII
}

// names maps a host as browsers do.
var names = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

// Judge looks at an address and at nothing else: no name is looked up.
func Judge(address string) Link {
	l := Link{Shown: safetext.Line(address)}
	u, err := url.Parse(address)
	switch {
	case err != nil, !utf8.ValidString(address), strings.ContainsAny(address, `\ <>"`):
		l.Refused = "it is no address that every program reads in the same way"
		return l
	case u.Scheme != "https" && u.Scheme != "http":
		l.Refused = fmt.Sprintf("addresses that begin with %q are not opened, only https: and http:", safetext.Short(u.Scheme, 40)+":")
		return l
	case u.Hostname() == "":
		l.Refused = "it names no host"
		return l
	}
	host, err := ascii(u.Hostname())
	if err != nil {
		l.Refused = "its host is no valid name"
		return l
	}
	l.Warnings = warnings(u, host)
	if readable, err := names.ToUnicode(host); err == nil && readable != host {
		l.Unicode = safetext.Line(readable)
		l.Warnings = append(l.Warnings, "the name of the host has letters beyond ASCII, which may look like others")
		if label, scripts := mixed(readable); label != "" {
			l.Warnings = append(l.Warnings, fmt.Sprintf("%q mixes letters of %s", label, strings.Join(scripts, " and ")))
		}
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	l.Host, l.Opens = host, u.String()
	return l
}

func ascii(host string) (string, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.WithZone("").String(), nil
	}
	name, err := names.ToASCII(host)
	if err != nil {
		return "", err
	}
	if again, err := names.ToASCII(name); err != nil || again != name {
		return "", errors.New("it is another name the second time")
	}
	return name, nil
}

// number is what browsers read as the last part of an IPv4 address.
var number = regexp.MustCompile(`(^|\.)([0-9]+|0[xX][0-9a-fA-F]*)\.?$`)

func warnings(u *url.URL, host string) (all []string) {
	if u.Scheme == "http" {
		all = append(all, "not https: others can read and change what is sent")
	}
	if u.User != nil {
		all = append(all, fmt.Sprintf("%q before the @ is a user name, and not where it leads", safetext.Short(u.User.Username(), 80)))
	}
	if _, err := netip.ParseAddr(host); err == nil || number.MatchString(host) {
		all = append(all, "the host is a bare network address")
	}
	if raw := u.String(); safetext.Line(raw) != raw || !isASCII(u.Path+u.RawQuery+u.Fragment) {
		all = append(all, "it has characters beyond ASCII after the host")
	}
	return all
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// Scripts whose letters look alike, or are written together.
var scripts = []struct {
	name  string
	table *unicode.RangeTable
}{
	{"Latin", unicode.Latin}, {"Greek", unicode.Greek}, {"Cyrillic", unicode.Cyrillic}, {"Armenian", unicode.Armenian},
	{"Hebrew", unicode.Hebrew}, {"Arabic", unicode.Arabic}, {"Cherokee", unicode.Cherokee}, {"Georgian", unicode.Georgian},
	{"Han", unicode.Han}, {"Hiragana", unicode.Hiragana}, {"Katakana", unicode.Katakana}, {"Hangul", unicode.Hangul},
}

// mixed finds a label of a host in which letters of several scripts stand.
// Those that Japanese and Korean are written with may.
func mixed(host string) (label string, found []string) {
	for label := range strings.SplitSeq(host, ".") {
		found = nil
		together := true
		for _, s := range scripts {
			if strings.ContainsFunc(label, func(r rune) bool { return unicode.Is(s.table, r) }) {
				found = append(found, s.name)
				together = together && strings.Contains("Han Hiragana Katakana Hangul", s.name)
			}
		}
		if len(found) > 1 && !together {
			return safetext.Line(label), found
		}
	}
	return "", nil
}
