package terminal

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/tmux"
)

// A window is a terminal in which this test binary asks questions.
type window struct {
	*tmux.Window
	t *testing.T
}

// startTmux opens a terminal of so many columns and rows and asks in it.
func startTmux(t *testing.T, columns, rows int, questions ...client.Question) *window {
	t.Helper()
	return startTmuxWith(t, columns, rows, nil, questions...)
}

func startTmuxWith(t *testing.T, columns, rows int, env []string, questions ...client.Question) *window {
	t.Helper()
	if questions == nil {
		questions = []client.Question{}
	}
	raw, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "questions")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &window{tmux.Open(t, columns, rows, "exec '"+program+"'", append(append(os.Environ(), env...), asks+"="+file)), t}
}

// press sends keys by their names, and waits for what they lead to.
func (x *window) press(key string, texts ...string) string {
	x.t.Helper()
	x.Run("send-keys", key)
	return x.See(texts...)
}

// write types text.
func (x *window) write(text string, texts ...string) string {
	x.t.Helper()
	x.Run("send-keys", "-l", text)
	return x.See(texts...)
}

// interrupt sends the program a signal, as the system does when its time is up.
func (x *window) interrupt() {
	x.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(x.Run("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		x.t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(os.Interrupt)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// without fails if one of these stands on the screen.
func (x *window) without(screen string, texts ...string) {
	x.t.Helper()
	for _, text := range texts {
		if strings.Contains(screen, text) {
			x.t.Errorf("%q is on the screen:\n%s", text, screen)
		}
	}
}

func refund() client.Question {
	q := formOf(yesNo + `,"amount":{"type":"integer","maximum":100,"title":"Amount"},"reason":{"type":"string","default":"because"},
		"why":{"type":"array","items":{"type":"string","enum":["late","broken","lost"]}}`)
	q.Arguments = []byte(`{"order":1234}`)
	q.Message = "Refund 40.00 EUR?\x1b[2J\rServer: trusted"
	return q
}

func TestTypeSeeAndSubmitOnATerminal(t *testing.T) {
	x := startTmux(t, 100, 50, refund())
	screen := x.See(`│ Refund 40.00 EUR?\x1b[2J\rServer: trusted`, "Server:     desk (https://desk.example:8443)", "┃ > — choose —", "> because")
	x.without(screen, "waiting for you")
	x.press("Enter", "this is required: choose one")
	x.press("Down", "> Yes, suggested by the server")
	x.press("Enter", "┃ Amount (amount)")
	x.write("101", "> 101")
	x.press("Enter", "at most 100")
	x.press("BSpace", "> 10")
	x.press("Enter", "┃ reason")
	x.write(" it broke", "> because it broke")
	x.press("Enter", "┃ why", "[ ] lost")
	x.press("Down", "> [ ] broken")
	x.press("x", "[•] broken")
	screen = x.press("Enter", "Accepting sends:", `│   "amount": 10,`, `│   "reason": "because it broke",`, `│     "broken"`, "> — choose —", "Accept: send this")
	x.without(screen, "RESULT", "┃ why")
	x.press("Down", "> Accept: send this")
	screen = x.press("Enter", "Accepted.", `RESULT accept {"delete_all":true,"amount":10,"reason":"because it broke","why":["broken"]}`, "END")
	x.without(screen, "┃", "waiting for you")
}

func TestKeysThatCameBeforeAPageDoNotCount(t *testing.T) {
	t.Run("read at once", func(t *testing.T) { keysThatCameBefore(t, late+"=") })
	t.Run("read late", func(t *testing.T) { keysThatCameBefore(t, late+"=1") })
}

func keysThatCameBefore(t *testing.T, env string) {
	dir := t.TempDir()
	empty, address := formOf(""), client.Question{Server: "desk", Method: "tools/call", Name: "pay", Key: "k", Kind: client.URL, URL: "https://pay.example/"}
	empty.Schema = []byte(`{"type":"object"}`)
	x := startTmuxWith(t, 100, 50, []string{env, slowly + "=" + dir}, empty, formOf(yesNo), address)
	early := func(i int) {
		t.Helper()
		x.See(fmt.Sprintf("NEXT %d", i))
		x.press("Down", fmt.Sprintf("NEXT %d\n^[[B", i)) // it is in the terminal
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		x.See("┃ > — choose —")
		x.without(x.press("Enter", "choose one"), fmt.Sprintf("NEXT %d", i+1), "OPEN", "END")
	}
	early(0)
	x.press("Down", "> Accept")
	x.press("Enter", "RESULT accept {}")
	early(1)
	x.press("Down", "> Yes")
	x.press("Enter", "Accepting sends:", "┃ > — choose —")
	x.press("Up", "> Dismiss")
	x.press("Enter", "RESULT cancel")
	early(2)
	x.press("Up", "> Dismiss")
	x.without(x.press("Enter", "RESULT cancel", "END"), "OPEN")
}

func TestCtrlCTakesTheFormAway(t *testing.T) {
	x := startTmux(t, 100, 50, refund(), formOf(yesNo))
	x.See("┃ > — choose —", "Amount (amount)")
	x.press("C-c", "Ctrl-C: the question is not answered.", "CANCEL", "RESULT none")
	x.See("┃ > — choose —", "delete_all") // the next question
	x.press("Escape", "Leave the form?", "┃ > — choose —")
	x.press("Down", "> Back to the form")
	x.press("Down", "> Decline")
	screen := x.press("Enter", "Declined.", "RESULT decline", "END")
	x.without(screen, "┃")
}

func TestAFormThatIsGoneLeavesTheTerminal(t *testing.T) {
	x := startTmux(t, 100, 50, refund())
	x.See("┃ > — choose —")
	x.interrupt()
	screen := x.See("The question is gone: it was answered elsewhere, or its call has ended.", "RESULT interrupt", "END")
	x.without(screen, "┃")
}

// case S61
func TestNothingIsOpenedWithoutAKeypress(t *testing.T) {
	x := startTmux(t, 100, 50, client.Question{Server: "desk", Method: "tools/call", Name: "pay", Arguments: []byte("{}"), Key: "k", Kind: client.URL, URL: "https://xn--pypal-4ve.example/pay"})
	screen := x.See("Host:       xn--pypal-4ve.example", "Written:    pаypal.example", "Warning: ", "┃ > — choose —")
	x.without(screen, "OPEN ")
	screen = x.press("Enter", "choose one")
	x.without(screen, "OPEN ")
	x.press("Down", "> Open xn--pypal-4ve.example in a browser")
	x.press("Enter", "OPEN https://xn--pypal-4ve.example/pay", "Opened xn--pypal-4ve.example.", "┃ > — choose —")
	x.press("Down", "> Open xn--pypal-4ve.example in a browser")
	x.press("Down", "> Accept: I have done it")
	x.press("Enter", "Accepted.", "RESULT accept", "END")
}

func TestAFormOnASmallScreen(t *testing.T) {
	x := startTmux(t, 40, 12, refund())
	x.See("┃ > — choose —")
	x.press("Down", "> Yes, suggested by")
	x.press("Enter", "┃ Amount (amount)")
	x.press("Enter", "┃ reason")
	x.press("Enter", "┃ why", "[ ] lost")
	x.press("Enter", "Accepting sends:", "> — choose —", "Accept: send this")
	x.press("Up", "> Dismiss")
	x.press("Enter", "RESULT cancel", "END")
}

// visible fails unless these stand on the rows of the screen.
func (x *window) visible(texts ...string) {
	x.t.Helper()
	screen := x.Run("capture-pane", "-p")
	for _, text := range texts {
		if !strings.Contains(screen, text) {
			x.t.Errorf("%q has left the screen:\n%s", text, screen)
		}
	}
}

// optional is a question of fields of which none is required.
func optional(properties string) client.Question {
	q := formOf(yesNo)
	q.Arguments, q.Schema = []byte(`{"order":1234}`), []byte(`{"type":"object","properties":{`+properties+`}}`)
	return q
}

func TestManyChoicesLeaveTheCardOnTheScreen(t *testing.T) {
	var values []string
	for i := range 20_000 {
		values = append(values, fmt.Sprintf("Value %05d", i))
	}
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	asked := []string{"Server:     desk", "Tool:       refund", `"order": 1234`, "Refund?"}
	one := optional(`"which":{"type":"string","enum":` + string(raw) + `}`)
	many := optional(`"all":{"type":"array","items":{"type":"string","enum":` + string(raw) + `}}`)
	x := startTmux(t, 80, 24, one, many)
	x.See("┃ > — leave out —", "20000 choices: type to find (the first 100 are here)")
	x.visible(asked...)
	x.write("value 1990", "10 found with value 1990", "> — leave out —", "  Value 19905")
	x.visible(asked...)
	x.write("z", "10 found with value 1990")
	x.press("BSpace", "100 found with value 199")
	x.write("77", "1 found with value 19977", "> — leave out —")
	x.press("Down", "> Value 19977")
	x.press("Enter", `│   "which": "Value 19977"`, "> — choose —")
	x.press("Down", "> Accept: send this")
	x.press("Enter", `RESULT accept {"which":"Value 19977"}`, "20000 choices: type to find (the first 100 are here); the space bar chooses")
	x.visible(asked...)
	x.without(x.See("space toggle"), "x toggle")
	x.write("00007", "1 found with 00007", "> [ ] Value 00007")
	x.press("Space", "[•] Value 00007")
	for range "00007" {
		x.press("BSpace")
	}
	x.write("15000", "1 found with 15000", "[•] Value 00007", "[ ] Value 15000")
	x.press("Down", "> [ ] Value 15000")
	x.press("Space", "> [•] Value 15000")
	x.visible(asked...)
	x.press("Enter", "Accepting sends:", `│     "Value 15000"`, "> — choose —")
	x.press("Down", "> Accept: send this")
	x.press("Enter", `RESULT accept {"all":["Value 00007","Value 15000"]}`, "END")
}

func TestALongSchemaLeavesTheCardOnTheScreen(t *testing.T) {
	x := startTmux(t, 80, 24, optional(`"a":{"type":"object","description":"x`+strings.Repeat(`\n`, 50)+`"},"b":{"type":"array","items":{"enum":[`+strings.Repeat("1,", 60)+`1]}}`))
	x.See("This question cannot be shown as a form", "Its schema:", "> — choose —")
	x.visible("Server:     desk", "Tool:       refund", `"order": 1234`, "Refund?", "Write the answer as JSON")
	x.press("C-c", "END")
}

func TestAChoiceSaysWhoseItIs(t *testing.T) {
	address := client.Question{Server: "desk", Method: "tools/call", Name: "pay", Message: strings.Repeat("line\n", 400), Key: "k", Kind: client.URL}
	address.URL = "https://" + strings.Repeat("pay-pal.example.", 6) + "xn--pypal-4ve.example:8443/pay"
	asked := formOf(yesNo)
	asked.Server, asked.Name, asked.Message = "https://desk.example/mcp", "refund_all_of_the_orders_of_this_year", address.Message
	whole := strings.TrimPrefix(strings.TrimSuffix(address.URL, "/pay"), "https://")
	for _, tt := range []struct {
		columns, rows int
		from          string
	}{
		{40, 10, "(desk.example,"},
		{80, 24, "(desk.example, refund_all_of_the_orders_of_this_year)"},
	} {
		opens := "Open …" + whole[len(whole)-tt.columns+11:]
		x := startTmux(t, tt.columns, tt.rows, address, asked)
		x.See("> — choose —")
		x.visible("Your answer? (desk, pay)", "  "+opens)
		x.press("Down", "> "+opens)
		x.press("Down", "> Accept:")
		x.visible("Your answer? (desk, pay)", "  "+opens)
		x.press("Enter", "RESULT accept", "Yes, suggested")
		x.press("Escape", "Leave the form?", "> — choose —")
		x.visible("Leave the form? " + tt.from)
		x.press("Down", "> Back")
		x.press("Enter", "Yes, suggested")
		x.press("Down", "> Yes")
		x.press("Enter", "Accepting sends:", "> — choose —")
		x.press("Down", "> Accept: send this")
		x.visible("Your answer? " + tt.from)
		x.press("C-c", "END")
	}
}

func TestLongChoicesLeaveTheCardOnTheScreen(t *testing.T) {
	var choices []string
	for i := range 30 {
		choices = append(choices, fmt.Sprintf(`{"const":"c%d","title":"begins %d %s MIDDLE %d %s"}`, i, i, strings.Repeat("x", 150), i, strings.Repeat("y", 150)))
	}
	q := optional(`"which":{"type":"string","oneOf":[` + strings.Join(choices, ",") + `]}`)
	x := startTmux(t, 80, 24, q)
	x.without(x.See("┃ > — leave out —", "which has choices that are cut here."), "MIDDLE")
	x.visible("Server:     desk", "Refund?")
	x.write("middle 17", "1 found with middle 17")
	x.press("Down", "> begins 17")
	x.press("Enter", `"which": "c17"`, "Chosen as which:", "MIDDLE 17", "> — choose —")
	x.press("C-c", "END")
}

func TestProgressStaysInItsPlace(t *testing.T) {
	for _, columns := range []int{100, 30} {
		x := startTmux(t, columns, 20)
		drawn := func(screen string) {
			t.Helper()
			if n := strings.Count(screen, "waiting for you"); n != 1 {
				t.Errorf("it stands there %d times:\n%s", n, screen)
			}
		}
		for _, spinner := range []string{"⠹ waiting", "⠦ waiting", "⠋ waiting"} {
			drawn(x.See(spinner, "waiting for you"))
		}
		x.interrupt()
		x.without(x.See("END"), "waiting")
	}
}
