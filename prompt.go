package tallystick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/yosida95/uritemplate/v3"

	"github.com/tallystick/tallystick/internal/wire"
)

// A PromptHandler makes a prompt, and may ask its requester for what it needs.
type PromptHandler func(ctx context.Context, call *Call, args map[string]string) (*mcp.GetPromptResult, error)

// A ResourceHandler reads a resource, and may ask its requester for what it
// needs.
type ResourceHandler func(ctx context.Context, call *Call, uri string) (*mcp.ReadResourceResult, error)

// AddPrompt adds a prompt to s and to the SDK server under it. Like a read-only
// tool, it is carried by its clients: it can ask its requester and nobody else,
// and have no effects. What a tool says in a result, it says in an error with
// one of the Code constants.
func AddPrompt(s *Server, p *mcp.Prompt, h PromptHandler) {
	required := map[string]bool{}
	for _, a := range p.Arguments {
		required[a.Name] = a.Required
	}
	s.add(&feature{
		method: wire.MethodGetPrompt, name: p.Name, readOnly: true, version: schemaVersion(p.Arguments),
		check: func(args json.RawMessage) (error, error) { return nil, checkPrompt(args, required) },
		run: func(ctx context.Context, c *Call) produced {
			args := map[string]string{}
			if raw := c.journal.Call().Args; len(raw) > 0 {
				if err := strictDecode(raw, &args); err != nil {
					return produced{err: err}
				}
			}
			res, err := h(ctx, c, args)
			if err == nil && res == nil {
				err = fmt.Errorf("prompt %q: the handler returned nothing", p.Name)
			}
			if err != nil {
				return produced{err: err}
			}
			out := &mcp.GetPromptResult{Meta: res.Meta, Description: res.Description, Messages: res.Messages}
			if out.Messages == nil {
				out.Messages = []*mcp.PromptMessage{} // the protocol knows no null here
			}
			raw, err := json.Marshal(out)
			return produced{result: complete(raw), err: err}
		},
	})
	s.mcp.AddPrompt(p, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		r, err := wire.FromPrompt(req, s.wireLimits())
		return legacy[mcp.GetPromptResult](ctx, s, r, err)
	})
}

func checkPrompt(args json.RawMessage, required map[string]bool) error {
	given := map[string]*string{}
	if len(args) > 0 {
		if err := strictDecode(args, &given); err != nil {
			return wire.Errorf(wire.CodeInvalidParams, "arguments of a prompt must be strings")
		}
	}
	for name, v := range given {
		if v == nil {
			return wire.Errorf(wire.CodeInvalidParams, "argument %q must be a string", name)
		}
	}
	for name, needed := range required {
		if _, ok := given[name]; needed && !ok {
			return wire.Errorf(wire.CodeInvalidParams, "argument %q is required", name)
		}
	}
	return nil
}

// AddResource adds a resource to s and to the SDK server under it, as AddPrompt
// does. Its results are marked as private and not to be cached.
func AddResource(s *Server, r *mcp.Resource, h ResourceHandler) {
	s.add(resourceFeature(r.URI, r.MIMEType, h))
	s.mcp.AddResource(r, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		q, err := wire.FromResource(req)
		return legacy[mcp.ReadResourceResult](ctx, s, q, err)
	})
}

// AddResourceTemplate is AddResource for all URIs of a template (RFC 6570). It
// panics if the template is invalid.
func AddResourceTemplate(s *Server, t *mcp.ResourceTemplate, h ResourceHandler) {
	tmpl := uritemplate.MustNew(t.URITemplate)
	f := resourceFeature(t.URITemplate, t.MIMEType, h)
	f.match = func(uri string) bool { return tmpl.Regexp().MatchString(uri) }
	s.mu.Lock()
	s.tmpls = append(s.tmpls, f)
	s.mu.Unlock()
	s.mcp.AddResourceTemplate(t, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		q, err := wire.FromResource(req)
		return legacy[mcp.ReadResourceResult](ctx, s, q, err)
	})
}

func resourceFeature(name, mime string, h ResourceHandler) *feature {
	return &feature{
		method: wire.MethodReadResource, name: name, readOnly: true,
		check: func(json.RawMessage) (error, error) { return nil, nil },
		run: func(ctx context.Context, c *Call) produced {
			uri := c.journal.Call().Action.Name
			res, err := h(ctx, c, uri)
			if err == nil && (res == nil || res.Contents == nil) {
				err = errors.New("the resource handler returned nothing")
			}
			if err != nil {
				return produced{err: err}
			}
			out := &mcp.ReadResourceResult{Meta: res.Meta, Cacheable: mcp.Cacheable{CacheScope: "private"}}
			for _, content := range res.Contents {
				filled := *content
				if filled.URI == "" {
					filled.URI = uri
				}
				if filled.MIMEType == "" {
					filled.MIMEType = mime
				}
				out.Contents = append(out.Contents, &filled)
			}
			if out.Contents == nil {
				out.Contents = []*mcp.ResourceContents{}
			}
			raw, err := json.Marshal(out)
			return produced{result: complete(raw), err: err}
		},
	}
}
