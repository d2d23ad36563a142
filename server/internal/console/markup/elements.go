package markup

// The elements of HTML that pages use.

func A(children ...Node) Node          { return El("a", children...) }
func Body(children ...Node) Node       { return El("body", children...) }
func Button(children ...Node) Node     { return El("button", children...) }
func Code(children ...Node) Node       { return El("code", children...) }
func Dd(children ...Node) Node         { return El("dd", children...) }
func Details(children ...Node) Node    { return El("details", children...) }
func Dialog(children ...Node) Node     { return El("dialog", children...) }
func Div(children ...Node) Node        { return El("div", children...) }
func Dl(children ...Node) Node         { return El("dl", children...) }
func Dt(children ...Node) Node         { return El("dt", children...) }
func FieldSet(children ...Node) Node   { return El("fieldset", children...) }
func FigCaption(children ...Node) Node { return El("figcaption", children...) }
func Figure(children ...Node) Node     { return El("figure", children...) }
func Form(children ...Node) Node       { return El("form", children...) }
func H1(children ...Node) Node         { return El("h1", children...) }
func H2(children ...Node) Node         { return El("h2", children...) }
func H3(children ...Node) Node         { return El("h3", children...) }
func Head(children ...Node) Node       { return El("head", children...) }
func Header(children ...Node) Node     { return El("header", children...) }
func HTML(children ...Node) Node       { return El("html", children...) }
func Img(children ...Node) Node        { return El("img", children...) }
func Input(children ...Node) Node      { return El("input", children...) }
func Kbd(children ...Node) Node        { return El("kbd", children...) }
func Label(children ...Node) Node      { return El("label", children...) }
func Legend(children ...Node) Node     { return El("legend", children...) }
func Li(children ...Node) Node         { return El("li", children...) }
func Link(children ...Node) Node       { return El("link", children...) }
func Main(children ...Node) Node       { return El("main", children...) }
func Meta(children ...Node) Node       { return El("meta", children...) }
func Nav(children ...Node) Node        { return El("nav", children...) }
func Ol(children ...Node) Node         { return El("ol", children...) }
func Option(children ...Node) Node     { return El("option", children...) }
func P(children ...Node) Node          { return El("p", children...) }
func Pre(children ...Node) Node        { return El("pre", children...) }
func Script(children ...Node) Node     { return El("script", children...) }
func Section(children ...Node) Node    { return El("section", children...) }
func Select(children ...Node) Node     { return El("select", children...) }
func Span(children ...Node) Node       { return El("span", children...) }
func Strong(children ...Node) Node     { return El("strong", children...) }
func Summary(children ...Node) Node    { return El("summary", children...) }
func Table(children ...Node) Node      { return El("table", children...) }
func TBody(children ...Node) Node      { return El("tbody", children...) }
func Td(children ...Node) Node         { return El("td", children...) }
func Textarea(children ...Node) Node   { return El("textarea", children...) }
func Th(children ...Node) Node         { return El("th", children...) }
func THead(children ...Node) Node      { return El("thead", children...) }
func Time(children ...Node) Node       { return El("time", children...) }
func TitleEl(children ...Node) Node    { return El("title", children...) }
func Tr(children ...Node) Node         { return El("tr", children...) }
func Ul(children ...Node) Node         { return El("ul", children...) }

// The attributes that pages use.

func Action(value string) Node       { return Attr("action", value) }
func Alt(value string) Node          { return Attr("alt", value) }
func AutoComplete(value string) Node { return Attr("autocomplete", value) }
func Charset(value string) Node      { return Attr("charset", value) }
func Class(value string) Node        { return Attr("class", value) }
func ColSpan(value string) Node      { return Attr("colspan", value) }
func Content(value string) Node      { return Attr("content", value) }
func DateTime(value string) Node     { return Attr("datetime", value) }
func For(value string) Node          { return Attr("for", value) }
func Height(value string) Node       { return Attr("height", value) }
func Href(value string) Node         { return Attr("href", value) }
func ID(value string) Node           { return Attr("id", value) }
func Lang(value string) Node         { return Attr("lang", value) }
func Method(value string) Node       { return Attr("method", value) }
func Name(value string) Node         { return Attr("name", value) }
func Placeholder(value string) Node  { return Attr("placeholder", value) }
func Rel(value string) Node          { return Attr("rel", value) }
func Role(value string) Node         { return Attr("role", value) }
func Rows(value string) Node         { return Attr("rows", value) }
func Scope(value string) Node        { return Attr("scope", value) }
func Src(value string) Node          { return Attr("src", value) }
func TabIndex(value string) Node     { return Attr("tabindex", value) }
func TitleAttr(value string) Node    { return Attr("title", value) }
func Type(value string) Node         { return Attr("type", value) }
func Value(value string) Node        { return Attr("value", value) }
func Width(value string) Node        { return Attr("width", value) }

// Attributes without a value.

func AutoFocus() Node { return flag("autofocus") }
func Defer() Node     { return flag("defer") }
func Hidden() Node    { return flag("hidden") }
func ReadOnly() Node  { return flag("readonly") }
func Required() Node  { return flag("required") }
func Selected() Node  { return flag("selected") }

// Aria returns the attribute aria-name, and Data the attribute data-name.
func Aria(name, value string) Node { return Attr("aria-"+name, value) }
func Data(name, value string) Node { return Attr("data-"+name, value) }
