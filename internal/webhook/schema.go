package webhook

import _ "embed" // the schema is part of the contract

//go:embed schema/event.schema.json
var eventSchema string

// EventSchema is the JSON Schema (2020-12) of every event, with one definition per type under $defs.
func EventSchema() string { return eventSchema }
