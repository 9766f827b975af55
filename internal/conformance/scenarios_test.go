package conformance

// revision is the MCP revision whose server scenarios are run.
const revision = "2026-07-28"

// scored are the server scenarios that the suite requires for the revision,
// each with the number of checks it makes of a server that has every fixture.
var scored = map[string]int{
	"caching":                                       8,
	"completion-complete":                           2,
	"dns-rebinding-protection":                      2,
	"input-required-result-basic-elicitation":       3,
	"input-required-result-basic-list-roots":        3,
	"input-required-result-basic-sampling":          3,
	"input-required-result-capability-check":        2,
	"input-required-result-ignore-extra-params":     2,
	"input-required-result-missing-input-response":  2,
	"input-required-result-multi-round":             4,
	"input-required-result-multiple-input-requests": 3,
	"input-required-result-non-tool-request":        3,
	"input-required-result-request-state":           3,
	"input-required-result-result-type":             2,
	"input-required-result-tampered-state":          2,
	"input-required-result-unsupported-methods":     2,
	"input-required-result-validate-input":          3,
	"prompts-get-embedded-resource":                 2,
	"prompts-get-simple":                            2,
	"prompts-get-with-args":                         2,
	"prompts-get-with-image":                        2,
	"prompts-list":                                  2,
	"resources-list":                                2,
	"resources-read-binary":                         2,
	"resources-read-text":                           2,
	"resources-templates-read":                      2,
	"sep-2164-resource-not-found":                   4,
	"server-sse-multiple-streams":                   2,
	"server-stateless":                              30,
	"tools-call-audio":                              2,
	"tools-call-embedded-resource":                  2,
	"tools-call-error":                              2,
	"tools-call-image":                              2,
	"tools-call-mixed-content":                      2,
	"tools-call-simple-text":                        2,
	"tools-call-with-progress":                      2,
	"tools-list":                                    4,
}

// unscored are those that the suite runs with the revision and leaves out of
// its exit code.
var unscored = map[string]int{
	"http-custom-header-server-validation": 10,
	"http-header-validation":               14,
	"json-schema-2020-12":                  8,
}

// tasks are the unscored scenarios of the Tasks extension.
var tasks = map[string]int{
	"tasks-capability-negotiation": 5,
	"tasks-dispatch-and-envelope":  9,
	"tasks-lifecycle":              9,
	"tasks-mrtr-composition":       2,
	"tasks-mrtr-input":             4,
	"tasks-request-headers":        5,
	"tasks-request-state-removal":  3,
	"tasks-required-task-error":    3,
	"tasks-status-notifications":   1,
	"tasks-wire-fields":            4,
}
