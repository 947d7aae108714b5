"""Prompts to train on as templates and the words that fill them: the project's own text, CC0-1.0.

`{name}` takes a word of that list; `{name2}` another one of the same list. None of it is a shipped task's.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

TEMPLATES: dict[str, tuple[str, ...]] = {
    "coding": (
        "Write a {language} function that {job}.",
        "Show me how to {feat} in {language}, with a short usage example.",
        "In {language}, what does it mean when I get a {fault}? How do I fix it?",
        "Write unit tests in Python for a function that {job}.",
        "Explain the difference between {structure} and {structure2} and when to use each.",
        "Write a SQL query over a table {table}(id, name, price, created_at) that {query}.",
        "Write a regular expression that matches {pattern}, and explain every part of it.",
        "Give me a {language} class for {thing} with three methods.",
        "What is the time complexity of {algorithm}? Explain with a small example.",
        "Write a bash command that {shell}.",
    ),
    "humanities": (
        "What were the main causes of {event}?",
        "How did {event} change everyday life for ordinary people?",
        "Compare {idea} with {idea2}.",
        "Who was {person} and why is this person remembered?",
        "What would a follower of {idea} say about {topic}?",
        "Explain {idea} to a student who hears of it for the first time.",
        "Describe the culture and history of {country} in a short paragraph.",
    ),
    "math": (
        "{name} has {number} {item} and buys {number2} more. Each costs ${price}. How much did {name} spend in total?",
        "What is {number} times {number2}? Show your work.",
        "A train travels {number} km in {small} hours. What is its average speed?",
        "Solve for x: {small}x + {small2} = {number}.",
        "If {number} {item} are shared equally among {small} friends, how many does each get, and how many are left?",
        "Find the area and the perimeter of a rectangle {small} m wide and {number} m long.",
        "What is {small}% of {number}?",
        "Explain {concept} with one worked example.",
    ),
    "reasoning": (
        "{name} is older than {name2}, and {name2} is older than {name3}. Who is the youngest? Explain.",
        "I have {small} {item} in each of {small2} boxes. I give away one box. How many are left? Think step by step.",
        "What are the advantages and disadvantages of {topic}?",
        "Should a small town spend its money on {project} or on {project2}? Weigh both sides.",
        "If all {group} are {group2} and some {group2} are {group3}, are some {group} {group3}? Explain.",
        "{name} wants to {goal} but has little {lack}. What are three steps to begin with?",
        "Why might {topic} be a bad idea for {people}?",
    ),
    "writing": (
        "Write a short story about {character} who {deed}.",
        "Write a poem about {subject}.",
        "Write a formal email to {recipient} about {matter}.",
        "Write a product description for {product}.",
        "Write a blog post introduction about {topic}.",
        "Rewrite this sentence so that it sounds more {tone}: {sentence}",
        "Give me {small} titles for an article about {topic}.",
        "Write a dialogue between {character} and {character2} about {subject}.",
        "Write a cover letter for a job as {trade}.",
    ),
    "roleplay": (
        "Pretend you are {character}. Tell me about your day.",
        "You are {trade} with thirty years of experience. What is your best advice for a beginner?",
        "Act as a travel guide in {city} and suggest what to see in one day.",
        "You are a friendly teacher. Explain {science} to a child of ten.",
        "Imagine you are {person}. A visitor asks you about {subject}. What do you answer?",
        "Play an interviewer who hires {trade}. Ask me five questions.",
    ),
    "stem": (
        "What is {science} and why does it matter?",
        "How does {device} work?",
        "Explain the difference between {science} and {science2}.",
        "What happens in the body when we {act}?",
        "Describe the life cycle of {animal}.",
        "List five facts about {animal}.",
        "Why is {substance} important in chemistry or in daily life?",
    ),
    "summarization": (
        "Summarize the following text in one sentence:\n\n{passage} {passage2} {passage3}",
        "What is the main point of this text?\n\n{passage} {passage2}",
        "Turn this into {small} bullet points:\n\n{passage} {passage2} {passage3}",
        "Give this text a title and a summary:\n\n{passage} {passage2}",
    ),
    "qa": (
        "What is the capital of {country}, and what is it known for?",
        "How do I {chore}?",
        "What is the best way to {goal}?",
        "What should I pack for a trip to {city} in {season}?",
        "How do you make {dish}? List the ingredients and the steps.",
        "What is the difference between {animal} and {animal2}?",
        "Can you recommend some healthy meals with {food}?",
        "What are the benefits of {habit}?",
    ),
    "rag": (
        "Use only this text to answer.\n\n{passage} {passage2}\n\nQuestion: {ask}",
        "Context: {passage} {passage2} {passage3}\n\nWhat does the text say about {name}?",
        "Read this: {passage}\n\nIs there enough information to say {whether}? Explain.",
        "Here are two notes. Note 1: {passage} Note 2: {passage2} What do they have in common?",
    ),
    "multilingual": (
        "Translate into {tongue}: {sentence}",
        "How do you say '{phrase}' in {tongue}?",
        "Teach me five useful words in {tongue} for {place}.",
        "Écris une courte histoire sur {animal}.",
        "Explica en español qué es {science}.",
        "Schreibe einen kurzen Text über {city}.",
    ),
}
"""By the kinds of the demo task."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in text.split(";") if word.strip())


WORDS: dict[str, tuple[str, ...]] = {
    "language": _words("Python; JavaScript; Java; C++; Go; Rust; TypeScript; Ruby; C#; Kotlin; PHP; Swift"),
    "job": _words("""
        reverses a string; checks whether a number is prime; sorts a list of dictionaries by a key; counts the vowels in
        a sentence; finds the largest number in a list; removes duplicates from a list; computes the factorial of a
        number; converts Celsius to Fahrenheit; checks if two words are anagrams; flattens a nested list; returns the
        n-th Fibonacci number; finds the longest word in a text; validates an email address; computes the average of a
        list; rotates a matrix by ninety degrees; finds the intersection of two arrays; parses a CSV line; counts how
        often each word occurs; checks for balanced brackets; generates a random password; computes the distance between
        two points; splits a list into chunks; formats a number with commas; finds a missing number"""),
    "feat": _words("""
        read a file line by line; send an HTTP request; sort an array in descending order; parse JSON; handle
        exceptions; connect to a database; loop over a dictionary; write to a log file; format a date; use a queue;
        measure how long a function takes; read command line arguments; create a simple web server; use recursion"""),
    "fault": _words("""
        null pointer exception; index out of range error; type mismatch; stack overflow; segmentation fault; key error;
        division by zero; connection timeout; syntax error; memory leak; permission denied error"""),
    "structure": _words("""
        an array; a linked list; a stack; a queue; a hash map; a binary tree; a heap; a set; a graph; a tuple; a
        process; a thread; a class; an interface"""),
    "table": _words("products; orders; books; tickets; rooms; courses; songs; recipes; devices"),
    "query": _words("""
        returns the five most expensive rows; counts the rows of each month; finds names that occur more than once;
        returns rows created in the last week; computes the average price; lists rows whose name starts with A"""),
    "pattern": _words("""
        a phone number; a date like 2024-03-15; a hexadecimal colour; an IPv4 address; a web address; a word with a
        capital letter; a price in dollars; a postal code; a time of day"""),
    "thing": _words("""
        a bank account; a shopping cart; a library book; a parking lot; a playlist; a chess piece; a vending machine; a
        student; a rectangle; a to-do list; an elevator; a calendar event"""),
    "algorithm": _words("""
        binary search; bubble sort; merge sort; quicksort; depth-first search; breadth-first search; Dijkstra's
        algorithm; insertion sort; linear search; a hash table lookup"""),
    "shell": _words("""
        lists the ten largest files in a folder; counts the lines of all text files; finds files changed today; renames
        all jpeg files to jpg; shows the free disk space; searches for a word in many files"""),
    "event": _words("""
        the French Revolution; the fall of Rome; the Industrial Revolution; the First World War; the Renaissance; the
        invention of the printing press; the Black Death; the American Civil War; the Cold War; the space race; the
        Great Depression; the Age of Exploration; the end of apartheid; the Reformation; the Meiji Restoration"""),
    "idea": _words("""
        Stoicism; utilitarianism; existentialism; Buddhism; democracy; capitalism; socialism; Romanticism; the
        Enlightenment; Impressionism; Confucianism; feudalism; Plato's theory of forms; liberalism; realism in art"""),
    "person": _words("""
        Marie Curie; Leonardo da Vinci; Cleopatra; Nelson Mandela; Isaac Newton; Ada Lovelace; Mahatma Gandhi; William
        Shakespeare; Frida Kahlo; Galileo Galilei; Florence Nightingale; Charles Darwin; Confucius; Mozart; Rosa Parks;
        Alexander the Great; Jane Austen; Albert Einstein"""),
    "topic": _words("""
        working from home; electric cars; social media; nuclear power; school uniforms; learning an instrument; public
        transport; online shopping; artificial intelligence; urban gardening; video games; reading every day; a four-day
        week; recycling; space travel; fast food; volunteering; remote learning; sleep; minimalism; renewable energy;
        keeping a diary; city life; small businesses; home cooking; early retirement"""),
    "country": _words("""
        Japan; Brazil; Egypt; Norway; India; Mexico; Kenya; Italy; Thailand; Canada; Peru; Greece; Morocco; Vietnam;
        Poland; Argentina; Turkey; Iceland; Portugal; Nigeria; Indonesia; Ireland; Chile; Nepal"""),
    "name": _words("""
        Maya; Tom; Lena; Omar; Julia; Kenji; Sofia; Peter; Amina; Carlos; Nora; David; Priya; Lucas; Emma; Ivan; Zoe;
        Samuel; Leila; Hugo; Grace; Mateo; Alice; Noah"""),
    "number": tuple(str(n) for n in (12, 15, 18, 20, 24, 25, 27, 30, 36, 40, 42, 45, 48, 56, 60, 64, 72, 75, 84, 90, 96,
        100, 120, 125, 144, 150, 180, 200, 240, 250, 300, 360, 400, 480)),
    "small": tuple(str(n) for n in range(2, 13)),
    "price": tuple(f"{n / 4:.2f}" for n in range(2, 40)),
    "item": _words("""
        apples; pencils; books; marbles; cookies; stickers; balloons; coins; oranges; cups; shells; stamps; eggs;
        bottles; tickets; candles; flowers; shirts"""),
    "concept": _words("""
        the Pythagorean theorem; prime factorization; the mean, median and mode; a quadratic equation; probability;
        fractions; compound interest; a derivative; the least common multiple; percentages; ratios; logarithms; negative
        numbers; the slope of a line; permutations"""),
    "project": _words("""
        a new library; better roads; a swimming pool; a public park; faster internet; a music school; bicycle lanes; a
        health centre; solar panels; a sports hall"""),
    "group": _words("roses; birds; painters; sailors; metals; squares; poets; whales; teachers; robots; dogs; stones"),
    "goal": _words("""
        learn a new language; save money; run a marathon; write a book; start a garden; make new friends; learn to cook;
        find a new job; sleep better; organize a party; build a website; study for an exam; stay motivated; reduce
        stress; eat less sugar; plan a budget; learn to draw; start a small business"""),
    "lack": _words("time; money; experience; space; patience; help; confidence"),
    "people": _words("young families; students; older people; small companies; beginners; farmers; tourists; artists"),
    "character": _words("""
        a lonely dragon; a young detective; an old clockmaker; a curious robot; a lost astronaut; a pirate captain; a
        talking cat; a retired wizard; a shy baker; a brave mouse; a time traveller; a lazy king; a street musician; a
        lighthouse ghost; a forgetful inventor; a travelling merchant; a village doctor; a snow queen"""),
    "deed": _words("""
        discovers a hidden door; loses a precious map; saves a village; learns to forgive; opens a small shop; travels
        to the moon; finds an old letter; must solve a riddle; makes an unlikely friend; wants to go home; breaks a
        promise; wins a strange contest; hears a secret; plants a magic seed"""),
    "subject": _words("""
        the sea; autumn leaves; friendship; the night sky; an old house; a long journey; the first snow; courage; a
        forgotten garden; the city at dawn; hope; music; rain; a mountain; time; a lost letter; silence"""),
    "recipient": _words("""
        my landlord; a customer; my manager; a professor; the city council; a supplier; my team; a neighbour; a hotel;
        the human resources department"""),
    "matter": _words("""
        a broken heater; a late delivery; a day off; a meeting next week; a missing invoice; a new project; noise at
        night; a price increase; a lost parcel; a thank you for help; a change of address; a refund"""),
    "product": _words("""
        a wooden desk lamp; a waterproof backpack; a coffee grinder; noise-cancelling headphones; a yoga mat; a smart
        watch; handmade soap; a folding bicycle; a garden chair; a reusable bottle; a children's puzzle"""),
    "tone": _words("polite; cheerful; formal; confident; friendly; dramatic; simple; professional"),
    "sentence": _words("""
        The meeting was moved to Friday.; I can't come to the party tonight.; The food was cold and the waiter was
        rude.; We need more time to finish the report.; She walked home in the rain.; The children are playing in the
        garden.; My brother works in a bakery.; Please send me the documents.; The train is always late.; I would like a
        cup of tea.; The weather is beautiful today.; He forgot his keys at the office.; This book changed my life.;
        They have lived here for ten years.; The museum opens at nine in the morning."""),
    "trade": _words("""
        a software engineer; a nurse; a carpenter; a chef; a teacher; a journalist; a gardener; a data analyst; a
        mechanic; a librarian; a graphic designer; an accountant; a photographer; a pilot; a farmer; a plumber"""),
    "city": _words("""
        Paris; Tokyo; Rome; Cairo; Lisbon; New York; Istanbul; Sydney; Prague; Bangkok; Vienna; Havana; Seoul; Cape
        Town; Barcelona; Mumbai; Edinburgh; Buenos Aires; Athens; Montreal"""),
    "science": _words("""
        photosynthesis; gravity; evolution; electricity; the water cycle; DNA; magnetism; osmosis; inertia; plate
        tectonics; natural selection; radioactivity; the greenhouse effect; black holes; cell division; friction; the
        immune system; sound waves; acids and bases; quantum mechanics; entropy; vaccines; machine learning; a solar
        eclipse; the nervous system; fermentation; volcanoes; the periodic table"""),
    "device": _words("""
        a refrigerator; a microwave oven; a jet engine; a solar panel; a battery; a telescope; a vacuum cleaner; a touch
        screen; an electric motor; a microscope; a GPS receiver; a hot air balloon; a nuclear reactor; a digital camera;
        a wind turbine; a 3D printer; a thermostat; a violin"""),
    "act": _words("""
        sleep; run; laugh; eat sugar; get a fever; hold our breath; feel fear; drink water; exercise; get sunburnt"""),
    "animal": _words("""
        a butterfly; a frog; a honeybee; a sea turtle; an elephant; an octopus; a penguin; a wolf; an owl; a dolphin; a
        crocodile; a salmon; an ant; a giraffe; a bat; a kangaroo; a spider; a shark; a hedgehog; a camel"""),
    "substance": _words("""
        water; carbon; iron; salt; oxygen; gold; nitrogen; copper; calcium; silicon; vinegar; hydrogen; sodium"""),
    "chore": _words("""
        remove a coffee stain; change a flat tyre; tie a tie; boil an egg; clean a keyboard; repot a plant; write a
        resume; sharpen a knife; unclog a drain; paint a wall; sew on a button; wash wool; fold a shirt; back up my
        phone; reset a password; wrap a gift; plant tomatoes; make coffee without a machine"""),
    "season": _words("spring; summer; autumn; winter; the rainy season"),
    "dish": _words("""
        pancakes; vegetable soup; fried rice; lasagna; guacamole; chicken curry; apple pie; pizza dough; hummus; an
        omelette; banana bread; lentil stew; sushi rolls; tomato sauce; potato salad; chocolate cake; tacos"""),
    "food": _words("""
        chickpeas; spinach; salmon; oats; eggs; mushrooms; sweet potatoes; tofu; broccoli; beans; quinoa; yogurt"""),
    "habit": _words("""
        walking every day; meditation; drinking enough water; reading before bed; stretching; cycling to work; writing
        by hand; getting up early; swimming; eating slowly; spending time in nature; learning chess"""),
    "passage": _words("""
        {name} opened a small bakery in {city} and sold {small} kinds of bread.; The old bridge was closed for {small}
        months because the stones had become loose.; {name2} collects {item} and keeps them in {small2} boxes under the
        bed.; Every summer the town holds a market where farmers sell {food} and {item}.; The museum of {city} bought
        {number} paintings last year and showed them in {season}.; A storm broke {number} trees in the park, so the path
        was closed.; {name} works as {trade} and takes the bus to {city} every morning.; Researchers studied {animal}
        for {small} years and found that it sleeps more in {season}.; The school asked its pupils to write about
        {topic}, and {number} texts were sent in.; The company makes {device} and plans to hire {number} people.; After
        the flood the families rebuilt the hall with wood from {country}.; {name3} learned to make {dish} from a
        neighbour who had lived in {country}.; The library is open from nine to six, but on Sundays it closes at
        {small}.; A new train connects {city} and {city2} in {small} hours and costs {number} dollars.; The village has
        {number} inhabitants, and half of them work on farms.; {name2} planted {small} rows of beans, and most of them
        died in the cold.; The band played {small2} songs about {subject} and then the lights went out.; Doctors say
        that {habit} helps people who are tired."""),
    "ask": _words("""
        Who is mentioned and what do they do?; How many are there?; When did it happen?; Where does it take place?; Why
        was it done?; What changed in the end?; What is not said in the text?"""),
    "whether": _words("""
        who paid for it; how long it took; where it happened; whether it was a success; how old the people are; what it
        cost; who is responsible"""),
    "tongue": _words("French; Spanish; German; Italian; Portuguese; Dutch; Latin; Swedish"),
    "phrase": _words("""
        good morning; where is the station; thank you very much; I am hungry; how much is it; my name is; see you
        tomorrow; excuse me; I don't understand; happy birthday; a glass of water, please; what time is it"""),
    "place": _words("a restaurant; a hotel; the market; the airport; a hospital; a school; a train station; the beach"),
}  # fmt: skip
